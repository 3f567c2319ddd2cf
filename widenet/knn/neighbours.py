"""Exact k nearest neighbours: float32 products select candidates, which are then compared exactly."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import pad

from widenet.arguments import checked_positions, typed
from widenet.data.vectors import Source, source_of
from widenet.errors import DataError, FitError, OptionError
from widenet.kernels import best_units
from widenet.kernels.best_units import running_top_k
from widenet.kernels.fixed_point import from_fixed, peaks_of, scales_for, to_fixed
from widenet.kernels.reference import unpacked
from widenet.metrics.ranking import checked_k
from widenet.model.network import Network
from widenet.parallel.exchange import Exchange, fixed_arithmetic
from widenet.parallel.group import by_all, device_for, exchange_for, join
from widenet.plan.tiles import Shards, searched_tiles
from widenet.spec.layers import InputLayer, OutputLayer

Measure: TypeAlias = Literal["dot", "cosine", "l2"]
"""The product of two vectors, the cosine of their angle, or their Euclidean distance."""

MEASURES: tuple[Measure, ...] = get_args(Measure)

_ROUNDING = 2.0**-24
"""Largest relative error of rounding to float32."""

_SMALLEST = 2.0**-125
"""Bound on the underflow of a term: twice the smallest normal float32."""
_LARGEST = 2.0**126
"""A product below this is finite."""

_FURTHER_ROUNDINGS = 16
"""Roundings besides those of a product: of lengths, of divisions, and of the last additions."""


def nearness(measure: Measure, queries_PD: Tensor, vectors_PD: Tensor) -> Tensor:
    """Compute the nearness of P pairs of vectors, float64 [P]; larger is nearer.

    It is the product, the cosine, or for "l2" minus the squared distance. Each result depends on its two
    vectors alone, not on other pairs or on the machine: float64 holds the product of two float32 exactly, and
    the sum over D is in fixed point, where each term loses at most the largest term times D 2^-60. The cosine
    is the product divided by both lengths, and 0 if a length is 0.
    """
    queries_PD, vectors_PD = queries_PD.double(), vectors_PD.double()
    if measure == "l2":
        return -_row_sums((queries_PD - vectors_PD).square())
    product_P = _row_sums(queries_PD * vectors_PD)
    if measure == "dot":
        return product_P
    lengths_P = _root(_row_sums(queries_PD.square())) * _root(_row_sums(vectors_PD.square()))
    return torch.where(lengths_P > 0, product_P / lengths_P, 0.0)


def _row_sums(terms_PD: Tensor) -> Tensor:
    peaks_P1 = peaks_of(terms_PD)
    scales_P1 = scales_for(peaks_P1, terms_PD.shape[1])
    total_P1 = to_fixed(terms_PD, scales_P1).sum(dim=1, keepdim=True)
    return from_fixed(total_P1, scales_P1, peaks_P1, torch.float64)[:, 0]


def shown(measure: Measure, nearness_EK: Tensor) -> Tensor:
    """Convert nearness to the scores that users see: the distance for "l2"."""
    return _root(-nearness_EK) if measure == "l2" else nearness_EK


def _root(values: Tensor) -> Tensor:
    """Correctly rounded square roots, float64; those of torch are not, on some CPUs."""
    return torch.from_numpy(np.sqrt(values.numpy())) if values.device.type == "cpu" else values.sqrt()


def lengths(vectors_ND: Tensor) -> Tensor:
    """Euclidean lengths, float64 [N]."""
    return vectors_ND.double().square().sum(dim=1).sqrt()


def approach(measure: Measure, queries_ED: Tensor) -> Tensor:
    """Operands of the float32 products, float32 [E, D]: the queries, scaled to length 1 for "cosine"."""
    if measure != "cosine":
        return queries_ED
    length_E1 = lengths(queries_ED)[:, None]
    return torch.where(length_E1 > 0, queries_ED / length_E1, 0.0).float()


def ceiling(
    measure: Measure, product_E: Tensor, direct_ED: Tensor, longest: float, shortest: float
) -> Tensor:
    """Bound the nearness of all vectors whose float32 product is at most `product_E`.

    The error of a float32 product of D numbers, added in any order, is at most D u / (1 - D u) |x| |y| with
    u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). The few further roundings
    count as more numbers.

    Args:
        measure: The measure.
        product_E: Largest product, as `Part.products` computes it, float32 [E].
        direct_ED: The result of `approach`.
        longest: Length of the longest vector.
        shortest: Length of the shortest vector, apart from those of length 0.

    Returns:
        float64 [E]; infinite if a product may have left the range of float32.
    """
    length_E, numbers = lengths(direct_ED), direct_ED.shape[1]
    unit = (numbers + _FURTHER_ROUNDINGS) * _ROUNDING
    underflow_E = numbers * _SMALLEST * (1 + length_E + longest)
    if measure == "cosine":
        largest_E = torch.full_like(length_E, longest + 1 / shortest)
        error_E = unit / (1 - unit) + underflow_E / shortest
    else:
        largest_E = length_E * longest if measure == "dot" else (length_E + longest).square()
        error_E = unit / (1 - unit) * largest_E + underflow_E
    nearness_E = product_E.double() if measure != "l2" else 2 * product_E.double() - length_E.square()
    return torch.where(largest_E < _LARGEST, nearness_E + error_E, torch.inf)


@runtime_checkable
class Trained(Protocol):
    """A network and its run, such as `widenet.Model`."""

    @property
    def network(self) -> Network:
        """The network with the weights."""

    @property
    def run(self) -> Any:
        """The run, whose `vocabulary(field)` has the names of a field's features."""


_BLOCK_NUMBERS = 2**20
"""Numbers of vectors that are converted to float64 at once."""


class Part:
    """The vectors of one shard.

    Attributes:
        measure: The measure of nearness.
        positions: Positions of the vectors.
        vectors_ND: The vectors as they are stored, finite, [N, D].
        extent: The largest length, and the smallest above 0, float64 [2].
        offset_N: For "l2": minus half the squared lengths, float32.
        factor_N: For "cosine": one over the lengths, float32; 0 for a vector of length 0.
    """

    def __init__(self, measure: Measure, positions: range, vectors_ND: Tensor) -> None:
        self.measure, self.positions, self.vectors_ND = measure, positions, vectors_ND
        rows = max(1, _BLOCK_NUMBERS // vectors_ND.shape[1])
        length_N = torch.cat([lengths(block) for block in torch.split(vectors_ND, rows)])
        above_N = torch.where(length_N > 0, length_N, torch.inf)
        ends = pad(length_N, (0, 1)).amax(dim=0), pad(above_N, (0, 1), value=torch.inf).amin(dim=0)
        self.extent = torch.stack(ends)
        self.offset_N = (-0.5 * length_N.square()).float() if measure == "l2" else None
        self.factor_N = (1 / above_N).float() if measure == "cosine" else None

    def rows(self, positions_P: Tensor) -> Tensor:
        """The vectors at some positions, float32 [P, D]; zeros for those of other shards."""
        rows_PD = torch.zeros(len(positions_P), self.vectors_ND.shape[1], device=positions_P.device)
        row_P, is_own_P = self._places(positions_P)
        rows_PD[is_own_P] = self.vectors_ND[row_P[is_own_P]].float()
        return rows_PD

    def _places(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of positions, and which of them this shard has."""
        start, stop, step = self.positions.start, self.positions.stop, self.positions.step
        behind = positions - start
        return behind // step, (behind >= 0) & (positions < stop) & (behind % step == 0)

    def products(self, direct_ED: Tensor, start: int, stop: int) -> Tensor:
        """Products of queries with a tile of vectors, float32 [E, stop - start]; larger is nearer.

        For "l2", the product minus half the squared length of the vector.
        """
        tile_TD = self.vectors_ND[start:stop].float()
        if self.offset_N is not None:
            return torch.addmm(self.offset_N[start:stop], direct_ED, tile_TD.T)
        product_ET = direct_ED @ tile_TD.T
        return product_ET if self.factor_N is None else product_ET.mul_(self.factor_N[start:stop])

    def best(self, direct_ED: Tensor, number: int, floor_E: Tensor) -> Tensor:
        """The keys of the positions with the largest products, int64 [E, number]; see `running_top_k`."""
        search, query = running_top_k(number, floor_E), best_units.Query.of(direct_ED)
        for start, stop in searched_tiles(len(self.vectors_ND), len(direct_ED), direct_ED.device.type):
            numbers = self.positions[start:stop]
            if isinstance(search, best_units.NativeTopK):
                factor_T, offset_T = (
                    None if each is None else each[start:stop] for each in (self.factor_N, self.offset_N)
                )
                vector_TD = self.vectors_ND[start:stop].float().contiguous()
                best_units.rank(query, [best_units.Units(vector_TD, numbers, factor_T, offset_T)], [search])
            else:
                search.add(self.products(direct_ED, start, stop), numbers)
        return search.result()

    def nearness(self, queries_ED: Tensor, positions_EC: Tensor) -> Tensor:
        """Exact nearness of the candidates in this shard, float64 [E, C]; -inf for those of other shards."""
        nearness_EC = torch.full(
            positions_EC.shape, -torch.inf, dtype=torch.float64, device=positions_EC.device
        )
        row_EC, is_own_EC = self._places(positions_EC)
        step = max(1, _BLOCK_NUMBERS // queries_ED.shape[1])
        for example_P, place_P in (cells.unbind(1) for cells in torch.split(is_own_EC.nonzero(), step)):
            vectors_PD = self.vectors_ND[row_EC[example_P, place_P]]
            nearness_EC[example_P, place_P] = nearness(self.measure, queries_ED[example_P], vectors_PD)
        return nearness_EC


def layer_with_vectors(network: Network, name: str | None) -> InputLayer | OutputLayer:
    """Return the layer of a name, or the only output for None; its units stand for the features of a field.

    Raises:
        FitError: The layer is neither a sparse input nor an output with weights.
    """
    wide = [spec.name for spec in network.spec.layers if _weights(network, spec.name)]
    name = next(iter(network.outputs)) if name is None and len(network.outputs) == 1 else name
    if name not in wide:
        rule = (
            f"must be a sparse input or an output with vectors, of {', '.join(wide) or 'which there is none'}"
        )
        raise FitError(rule, option="layer", value=name)
    spec = network.spec.layer(name)
    assert isinstance(spec, InputLayer | OutputLayer), "only these have a field"
    return spec


def parts_of(network: Network, layer: str, measure: Measure, count: int) -> dict[int, Part]:
    """The weights of a layer's first `count` units, by shard, without biases.

    An input's weights to all its readers stand side by side. A single matrix is the network's own, not a
    copy.
    """
    weights = _weights(network, layer)
    shards = network.wide[weights[0]].shards

    def part(shard: int) -> tuple[int, Part]:
        units = Shards(count, shards.count).units(shard)
        held = [network.wide[name].parts[shard].rows(0, len(units)).weight.detach() for name in weights]
        matrices = [matrix.to(network.device) for matrix in held]
        vectors_ND = matrices[0] if len(matrices) == 1 else torch.cat(matrices, dim=1)
        return shard, Part(measure, units, vectors_ND)

    return dict(network.exchange.each(part))


def _weights(network: Network, layer: str) -> list[str]:
    """Names of the wide weights whose rows are a layer's units; empty if the layer has none."""
    if layer in network.outputs:
        return [] if network.outputs[layer].spec.weightless else [network.layout.links[layer, ""].weight]
    named = [link.weight for (_, source), link in network.layout.links.items() if source == layer]
    weights = network.layout.weights
    return [name for name in dict.fromkeys(named) if weights[name].wide and not weights[name].split]


Stored: TypeAlias = Literal["float32", "bfloat16", "float16"]
"""The dtype in which vectors are stored; those of 2 bytes are rounded on reading and compared as rounded."""

LARGEST_BLOCK = 512
"""Largest number of queries that are processed at once."""

_CANDIDATES_A_BLOCK = 2**21
"""Largest number of candidates of all queries of a block, so that their exact nearness fits in memory."""

_LONGEST_VECTOR = 2**20
"""Limit on D; there, the error of a float32 product is up to a sixteenth of the product of the lengths."""

_SPARE, _SPARE_SHARE = 16, 8
"""Candidates beyond k: at least _SPARE, or k / _SPARE_SHARE."""
_WIDER = 4
"""Factor on the number of candidates when a query must be repeated."""


class Neighbours:
    """A collection of N vectors of D numbers, each with a key, in which to search for nearest neighbours.

    Answers are exact and depend on the vectors alone, not on the number of processes, threads or shards.
    `measures.nearness` defines the order; of equally near vectors, the one at the lower position comes first.
    The vectors are cut into shards by position, and each process holds some of the shards.

    Attributes:
        keys: N texts, by position.
        parts: The shards of this process, by number.
        measure: The measure of nearness.
        exchange: The group of processes.
    """

    def __init__(self, keys: pa.Array, parts: dict[int, Part], measure: Measure, exchange: Exchange) -> None:
        self.keys, self.parts, self.measure, self.exchange = keys, parts, measure, exchange
        first = next(iter(parts.values())).vectors_ND
        self.columns, self.device = first.shape[1], first.device
        extents = exchange.gather(exchange.each(lambda shard: parts[shard].extent), "neighbours")
        longest_S, shortest_S = torch.stack(extents).unbind(dim=1)
        self.longest, self.shortest = float(longest_S.max()), float(shortest_S.min())

    @classmethod
    @typed
    def of(
        cls,
        vectors: "ArrayLike | Tensor | Source | str | Path | Sequence[str | Path]",
        keys: Iterable[str] | None = None,
        *,
        measure: Measure = "dot",
        stored: Stored = "float32",
        device: str | None = None,
        shards: int = 8,
    ) -> "Neighbours":
        """Make a collection of vectors.

        Every process of a group must call this, as with `train`, and all methods of the result; each keeps
        its own shards.

        Args:
            vectors: Finite numbers [N, D], or one or several files of them; see `widenet.data.vectors`.
            keys: N texts; None uses those of the files, or the positions.
            measure: "dot", "cosine" or "l2".
            stored: The dtype in which to keep the vectors.
            device: "cpu" or "cuda"; None uses CUDA if there is a device.
            shards: Number of pieces to cut the vectors into; it changes no answer.

        Raises:
            DataError: A file cannot be read, or holds something else than finite vectors.
            FitError: Files have vectors of different lengths.
            OptionError: An argument is wrong.
        """
        source = source_of(vectors, keys)
        length, rule = source.columns, f"must have fewer than {_LONGEST_VECTOR:,} numbers"
        OptionError.require(length < _LONGEST_VECTOR, rule, option="vectors", value=length)
        own_device = device_for(device)
        join(own_device)
        exchange = exchange_for(shards, own_device)
        parts: dict[int, Part] = {}

        def read(shard: int) -> None:
            # A range of consecutive vectors, because files are read in order.
            start, stop = (len(source) * edge // shards for edge in (shard, shard + 1))
            stored_ND = torch.from_numpy(source.rows(start, stop)).to(own_device, getattr(torch, stored))
            _check_finite(stored_ND, source, start, stored)
            parts[shard] = Part(measure, range(start, stop), stored_ND)

        with fixed_arithmetic():
            by_all(exchange, lambda: exchange.each(read), "vectors")
            return cls(source.keys, parts, measure, exchange)

    @classmethod
    @typed
    def of_model(cls, model: Trained, layer: str | None = None, measure: Measure = "cosine") -> "Neighbours":
        """Make a collection of a trained network's weights: a vector for each feature, with its id as key.

        Args:
            model: The trained network.
            layer: A sparse input or an output; None uses the only output.
            measure: "dot", "cosine" or "l2".

        Raises:
            FitError: The network has no such layer, or the layer has no such weights.
            OptionError: The measure is unknown.
        """
        network, spec = model.network, layer_with_vectors(model.network, layer)
        keys = model.run.vocabulary(spec.field).all_ids()
        with fixed_arithmetic(), torch.no_grad():
            return cls(keys, parts_of(network, spec.name, measure, len(keys)), measure, network.exchange)

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Neighbours({len(self):,} vectors of {self.columns:,} numbers, {self.measure!r})"

    @typed
    def search(
        self, queries: "ArrayLike | Tensor", k: int = 10
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the nearest vectors of each query, nearest first.

        Args:
            queries: Finite numbers [E, D], used as float32.
            k: Number of vectors.

        Returns:
            Scores float64 [E, K] and positions int64 [E, K], K = min(k, N). Scores are products, cosines or
            distances, according to the measure.
        """
        return self._search(self.check_queries(source_of(queries, None)), k)

    def _search(self, queries_ED: Tensor, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        number = min(checked_k(k), len(self))
        num_candidates = min(number + max(_SPARE, number // _SPARE_SHARE), len(self))
        with fixed_arithmetic(), torch.no_grad():
            nearness_EK, positions_EK = self._nearest(queries_ED, number, num_candidates)
            return shown(self.measure, nearness_EK).cpu().numpy(), positions_EK.cpu().numpy()

    def others(
        self, positions: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the vectors nearest to those at some positions, each but itself.

        Returns:
            Scores and positions as of `search`, one more than k of each, and which of them are its k nearest,
            all [E, min(k + 1, N)].
        """
        scores_EK, nearest_EK = self.search(self.vectors(positions), k + 1)
        kept_EK: NDArray[np.bool_] = nearest_EK != positions[:, None]
        kept_EK &= kept_EK.cumsum(axis=1) <= k
        return scores_EK, nearest_EK, kept_EK

    def search_all(
        self, queries: Source, k: int, size: int
    ) -> Iterator[tuple[list[str], list[list[str]], NDArray[np.float64]]]:
        """Search for all queries of a source, `size` at a time.

        Yields:
            The keys of the queries, the keys of the nearest vectors of each, nearest first, and the scores
            [E, K].
        """
        for start in range(0, len(queries), size):
            stop = min(start + size, len(queries))
            scores, positions = self._search(self.check_queries(queries, start, stop), k)
            nearest = [self.keys.take(pa.array(row)).to_pylist() for row in positions]
            yield queries.keys[start:stop].to_pylist(), nearest, scores

    def check_queries(self, source: Source, start: int = 0, stop: int | None = None) -> Tensor:
        """Return queries, float32 [E, D], on the vectors' device; raises FitError, DataError."""
        if source.columns != self.columns:
            rule = f"must have {self.columns:,} numbers, as the vectors have"
            raise FitError(rule, option="queries", value=source.columns)
        queries_ED = torch.from_numpy(source.rows(start, len(source) if stop is None else stop))
        _check_finite(queries_ED, source, start, "float32")
        return queries_ED.to(self.device)

    def vectors(self, positions: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors at some positions, float32 [len(positions), D], as they are stored.

        Raises:
            OptionError: A position is not in [0, N).
        """
        numbers = checked_positions("Neighbours", "positions", positions, len(self))
        positions_P = torch.as_tensor(numbers, device=self.device)
        of_shards = self.exchange.each(lambda shard: self.parts[shard].rows(positions_P))
        return torch.stack(self.exchange.gather(of_shards, "neighbours")).sum(dim=0).cpu().numpy()

    def _nearest(self, queries_ED: Tensor, k: int, num_candidates: int) -> tuple[Tensor, Tensor]:
        """Nearness and positions [E, k], nearest first, chosen among so many candidates for each query."""
        block_size = max(1, min(LARGEST_BLOCK, _CANDIDATES_A_BLOCK // num_candidates))
        blocks = torch.split(queries_ED, block_size)
        found = [self._nearest_of_block(block_ED, k, num_candidates) for block_ED in blocks]
        nearness, positions = zip(*found, strict=True)
        return torch.cat(nearness), torch.cat(positions)

    def _nearest_of_block(self, queries_ED: Tensor, k: int, num_candidates: int) -> tuple[Tensor, Tensor]:
        """As `_nearest`, for queries that fit in memory.

        The candidates are the vectors with the largest float32 products; their exact nearness orders them. If
        another vector could be as near as the k-th candidate, the query is repeated with more candidates.
        """
        candidates_EC, ceiling_E = self._candidates(queries_ED, num_candidates)
        of_shards = self.exchange.each(lambda shard: self.parts[shard].nearness(queries_ED, candidates_EC))
        nearness_EC = torch.stack(self.exchange.gather(of_shards, "neighbours")).amax(dim=0)
        nearness_EC, order_EC = nearness_EC.sort(dim=1, descending=True, stable=True)
        nearness_EK, positions_EK = nearness_EC[:, :k], candidates_EC.gather(1, order_EC)[:, :k]
        if num_candidates == len(self):
            return nearness_EK, positions_EK
        unsure = ~(ceiling_E < nearness_EK[:, -1])
        if unsure.any():
            more = min(_WIDER * num_candidates, len(self))
            nearness_EK[unsure], positions_EK[unsure] = self._nearest(queries_ED[unsure], k, more)
        return nearness_EK, positions_EK

    def _candidates(self, queries_ED: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Positions of candidates int64 [E, number], ascending, and a bound on the others, float64 [E]."""
        if number == len(self):
            everything = torch.arange(number, device=self.device).expand(len(queries_ED), number)
            return everything, queries_ED.new_full((len(queries_ED),), -torch.inf, dtype=torch.float64)
        direct_ED = approach(self.measure, queries_ED)
        floor_E = direct_ED.new_full((len(direct_ED),), -torch.inf)
        best = self.exchange.each(lambda shard: self.parts[shard].best(direct_ED, number, floor_E))
        keys_EC = torch.cat(self.exchange.gather(best, "neighbours"), dim=1).topk(number, dim=1).values
        product_EC, positions_EC = unpacked(keys_EC)
        ceiling_E = ceiling(self.measure, product_EC[:, -1], direct_ED, self.longest, self.shortest)
        return positions_EC.sort(dim=1).values, ceiling_E


def _check_finite(vectors_ND: Tensor, source: Source, start: int, stored: str) -> None:
    wrong_N = ~torch.isfinite(vectors_ND).all(dim=1)
    if wrong_N.any():
        row = int(wrong_N.nonzero()[0, 0])
        vector = source.rows(start + row, start + row + 1)[0].tolist()
        number = vector[int((~torch.isfinite(vectors_ND[row])).nonzero()[0, 0])]
        raise DataError(f"{source.place(start + row)}: numbers must be finite in {stored}", value=number)


Answer = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Scores and positions."""


@dataclass
class _Batch:
    """Queries that wait for one search."""

    queries: list[NDArray[np.float32]] = field(default_factory=list)
    answer: "Future[Answer]" = field(default_factory=Future)


class BatchedNeighbours:
    """Answers single queries from any number of threads, in batches of up to `size`.

    A query waits until the batch is full, or until `timeout_seconds` have passed since its first query. The
    thread of the first query then searches for the whole batch. Batching changes no answer. Use it in one
    process only: the processes of a group would form different batches.
    """

    @typed
    def __init__(
        self, neighbours: Neighbours, k: int = 10, size: int = 128, timeout_seconds: float = 0.01
    ) -> None:
        OptionError.require(size >= 1, "must be at least 1", option="size", value=size)
        is_right, rule = timeout_seconds >= 0, "must be at least 0"
        OptionError.require(is_right, rule, option="timeout_seconds", value=timeout_seconds)
        self.neighbours, self.k = neighbours, checked_k(k)
        self.size, self.timeout_seconds = size, timeout_seconds
        self._open, self._changed, self._searching = _Batch(), Condition(), Lock()

    def nearest(self, query: ArrayLike) -> Answer:
        """Return scores float64 [K] and positions int64 [K] of the vectors nearest to a query [D].

        See `Neighbours.search`; raises what a search for this query alone would raise.
        """
        query_1D = self.neighbours.check_queries(source_of(np.asarray(query)[None], None)).cpu().numpy()
        with self._changed:
            batch, row = self._open, len(self._open.queries)
            batch.queries.append(query_1D)
            if row + 1 == self.size:
                self._close(batch)
        if row == 0:
            self._answer(batch)
        scores_EK, positions_EK = batch.answer.result()
        return scores_EK[row], positions_EK[row]

    def _answer(self, batch: _Batch) -> None:
        """Wait until the batch is closed and search for it; an error is passed to all its queries."""
        try:
            with self._changed:
                try:
                    self._changed.wait_for(lambda: self._open is not batch, self.timeout_seconds)
                finally:
                    self._close(batch)
            with self._searching:
                batch.answer.set_result(self.neighbours.search(np.concatenate(batch.queries), self.k))
        except BaseException as error:
            batch.answer.set_exception(error)

    def _close(self, batch: _Batch) -> None:
        """Let no more queries join a batch."""
        if self._open is batch:
            self._open = _Batch()
            self._changed.notify_all()
