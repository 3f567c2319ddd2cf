"""The k nearest vectors of a collection: found by float32 products, proven and ordered by the exact rule."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from widenet.arguments import typed
from widenet.errors import DataError, FitError, OptionError, did_you_mean
from widenet.kernels.running_top_k import unpacked
from widenet.knn.measures import MEASURES, Measure, approach, ceiling, shown
from widenet.knn.of_network import Trained, check_layer, features_of, parts_of
from widenet.knn.part import Part
from widenet.knn.sources import Source, source_of
from widenet.metrics import checked_k
from widenet.model.exchange import Exchange
from widenet.parallel.group import by_all, device_for, exchange_for, join
from widenet.parallel.threads import one_thread_an_operation
from widenet.plan.shards import Shards

Stored: TypeAlias = Literal["float32", "bfloat16", "float16"]
"""The type in which vectors are kept; those of 2 bytes are rounded when they are read, and compared as
they are then.
"""

LARGEST_BLOCK = 512
"""Queries that are compared at once."""

_CANDIDATES_A_BLOCK = 2**21
"""Candidates of all queries that are compared at once, so that their exact nearness fits in memory."""

_LONGEST_VECTOR = 2**20
"""Numbers of a vector: with as many, a float32 product may be wrong by a sixteenth of the lengths'
product.
"""

_SPARE, _SPARE_SHARE, _WIDER = 16, 8, 4
"""Candidates beyond the k asked for: at least so many, or this part of k; and how many times as many where
they left a doubt.
"""


class Neighbours:
    """A collection of N vectors of D numbers, each with a key, that tells which of them are nearest to a
    query.

    Answers are exact, and depend on the vectors alone: on no number of processes, threads or shards.
    `nearness` says how it is computed; of equally near vectors the one of the lower position comes first.
    keys: N texts, by position. vectors are cut into shards by position; a process holds some of them.
    """

    def __init__(self, keys: pa.Array, parts: dict[int, Part], measure: Measure, exchange: Exchange) -> None:
        self.keys, self.parts, self.measure, self.exchange = keys, parts, measure, exchange
        first = next(iter(parts.values())).vectors_ND
        self.columns, self.device = first.shape[1], first.device
        here = exchange.each(lambda shard: _extent(parts[shard]))
        extents = torch.stack(exchange.gather(here, "neighbours"))
        self.longest, self.shortest, self.largest_part = (
            float(extents[:, 0].max()),
            float(extents[:, 1].min()),
            int(extents[:, 2].max()),
        )

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
        """The collection of some vectors.

        vectors: [N, D] finite numbers; or files of them (`widenet.knn.sources`), one after the other.
        keys: N texts; those of the files, or else the positions, if not given.
        device: cpu or cuda; None: cuda where there is one. shards: into how many pieces they are cut, which
        changes no answer. Every process of a group must call it, as with `train`, and whatever is then asked;
        each keeps its own shards. Raises DataError, FitError, OptionError.
        """
        checked("measure", measure, MEASURES)
        checked("stored", stored, get_args(Stored))
        source = source_of(vectors, keys)
        if source.columns >= _LONGEST_VECTOR:
            raise OptionError(
                f"vectors must have fewer than {_LONGEST_VECTOR:,} numbers; got {source.columns:,}."
            )
        chosen = device_for(device)
        join(chosen)
        exchange, cut, parts = exchange_for(shards, chosen), Shards(len(source), shards), dict[int, Part]()

        def read(shard: int) -> None:
            rows_ND = torch.from_numpy(source.rows(cut.start(shard), cut.stop(shard)))
            kept_ND = rows_ND.to(chosen, getattr(torch, stored))
            _check_finite(kept_ND, source, cut.start(shard), stored)
            parts[shard] = Part.of(measure, cut.start(shard), kept_ND)

        with one_thread_an_operation():
            by_all(exchange, lambda: exchange.each(read), "vectors")
            return cls(source.keys, parts, measure, exchange)

    @classmethod
    @typed
    def of_model(cls, model: Trained, layer: str | None = None, measure: Measure = "cosine") -> "Neighbours":
        """The features of a sparse input or an output, by their weights in a trained network; their ids are
        the keys.

        layer: the only output if not given. Raises FitError, OptionError.
        """
        checked("measure", measure, MEASURES)
        network, name = model.network, check_layer(model.network, layer)
        keys = features_of(model, name).all_ids()
        with one_thread_an_operation(), torch.no_grad():
            return cls(keys, parts_of(network, name, measure, len(keys)), measure, network.exchange)

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Neighbours({len(self):,} vectors of {self.columns:,} numbers, {self.measure!r})"

    @typed
    def search(
        self, queries: "ArrayLike | Tensor", k: int = 10
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores float64 [E, K] and positions int64 [E, K] of the nearest vectors, nearest first, K = min(k,
        N).

        queries: [E, D] finite numbers, taken as float32. Scores are products, cosines or distances, as the
        measure is.
        """
        number, queries_ED = min(checked_k(k), len(self)), self.check_queries(source_of(queries, None))
        with one_thread_an_operation(), torch.no_grad():
            nearness_EK, positions_EK = self._nearest(
                queries_ED, number, min(number + max(_SPARE, number // _SPARE_SHARE), len(self))
            )
            return shown(self.measure, nearness_EK).cpu().numpy(), positions_EK.cpu().numpy()

    def search_all(
        self, queries: Source, k: int, size: int
    ) -> Iterator[tuple[list[str], list[list[str]], NDArray[np.float64]]]:
        """For so many queries at a time: their keys, the keys of the nearest vectors of each, nearest
        first, and the scores [E, K].
        """
        for start in range(0, len(queries), size):
            stop = min(start + size, len(queries))
            asked = queries.rows(start, stop)
            _check_finite(torch.from_numpy(asked), queries, start, "float32")
            scores, positions = self.search(asked, k)
            found = self.keys.take(pa.array(positions.reshape(-1))).to_pylist()
            width = positions.shape[1]
            yield (
                queries.keys[start:stop].to_pylist(),
                [found[row * width : (row + 1) * width] for row in range(len(asked))],
                scores,
            )

    def check_queries(self, source: Source) -> Tensor:
        """Queries float32 [E, D] on the device of the vectors; raises FitError, DataError where they are
        none.
        """
        if source.columns != self.columns:
            raise FitError(
                f"queries must have {self.columns:,} numbers, as the vectors have; got {source.columns:,}."
            )
        queries_ED = torch.from_numpy(source.rows(0, len(source))).to(self.device)
        _check_finite(queries_ED, source, 0, "float32")
        return queries_ED

    def vectors(self, positions: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors at some positions, float32 [len(positions), D], as they are stored."""
        asked = torch.as_tensor(np.asarray(positions, dtype=np.int64), device=self.device)
        found = self.exchange.each(lambda shard: self.parts[shard].rows(asked))
        return torch.stack(self.exchange.gather(found, "neighbours")).sum(dim=0).cpu().numpy()

    def _nearest(self, queries_ED: Tensor, k: int, number: int) -> tuple[Tensor, Tensor]:
        """Nearness and positions [E, k], nearest first, by way of so many candidates for each query."""
        found = (
            [queries_ED.new_zeros(0, k, dtype=torch.float64)],
            [torch.zeros(0, k, dtype=torch.int64, device=self.device)],
        )
        for block_ED in torch.split(queries_ED, max(1, min(LARGEST_BLOCK, _CANDIDATES_A_BLOCK // number))):
            for whole, part in zip(found, self._nearest_of_block(block_ED, k, number), strict=True):
                whole.append(part)
        return torch.cat(found[0]), torch.cat(found[1])

    def _nearest_of_block(self, queries_ED: Tensor, k: int, number: int) -> tuple[Tensor, Tensor]:
        """Candidates are those with the largest float32 products, put in order by the exact rule.

        Where a vector that is no candidate might be as near as the k-th of them, that query is asked again
        with more candidates.
        """
        candidates_EC, ceiling_E = self._candidates(queries_ED, number)
        found = self.exchange.each(lambda shard: self.parts[shard].nearness(queries_ED, candidates_EC))
        nearness_EC = torch.stack(self.exchange.gather(found, "neighbours")).amax(dim=0)
        nearness_EC, order_EC = nearness_EC.sort(dim=1, descending=True, stable=True)
        nearness_EK, positions_EK = nearness_EC[:, :k], candidates_EC.gather(1, order_EC)[:, :k]
        unsure = (
            ~(ceiling_E < nearness_EK[:, -1])
            if number < len(self)
            else torch.zeros_like(ceiling_E, dtype=torch.bool)
        )
        if unsure.any():
            nearness_EK[unsure], positions_EK[unsure] = self._nearest(
                queries_ED[unsure], k, min(_WIDER * number, len(self))
            )
        return nearness_EK, positions_EK

    def _candidates(self, queries_ED: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Positions int64 [E, number], ascending; and how near any other vector is at most, float64 [E]."""
        if number == len(self):
            everything = torch.arange(number, device=self.device).expand(len(queries_ED), number)
            return everything, queries_ED.new_full((len(queries_ED),), -torch.inf, dtype=torch.float64)
        direct_ED, most = approach(self.measure, queries_ED), min(number, self.largest_part)
        floor_E = direct_ED.new_full((len(direct_ED),), -torch.inf)
        found = self.exchange.each(lambda shard: self.parts[shard].best(direct_ED, most, floor_E))
        keys_EC = torch.cat(self.exchange.gather(found, "neighbours"), dim=1).topk(number, dim=1).values
        product_EC, positions_EC = unpacked(keys_EC)
        ceiling_E = ceiling(self.measure, product_EC[:, -1], direct_ED, self.longest, self.shortest)
        return positions_EC.sort(dim=1).values, ceiling_E


def _extent(part: Part) -> Tensor:
    """What all processes must know of a shard: its longest and its shortest length, and how many vectors
    it has.
    """
    device = part.vectors_ND.device
    return torch.tensor(
        [part.longest, part.shortest, len(part.vectors_ND)], dtype=torch.float64, device=device
    )


def _check_finite(vectors_ND: Tensor, source: Source, start: int, stored: str) -> None:
    wrong_N = ~torch.isfinite(vectors_ND).all(dim=1)
    if wrong_N.any():
        row = int(wrong_N.nonzero()[0, 0])
        text = source.rows(start + row, start + row + 1)[0].tolist()
        number = text[int((~torch.isfinite(vectors_ND[row])).nonzero()[0, 0])]
        raise DataError(
            f"{source.place(start + row)}: numbers must be finite in {stored}; got {number}. Leave the vector"
            " out."
        )


def checked(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise OptionError where a word is none of those known."""
    if value not in known:
        raise OptionError(
            f"{name} must be one of {', '.join(known)}; got {value!r}.{did_you_mean(str(value), known)}"
        )
