"""The terms that an output adds for an example's features: their neighbours, and repeats of a sequence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.together import Neighbours, neighbours
from widenet.kernels.exchange import Exchange
from widenet.kernels.neighbour_means import neighbour_means
from widenet.kernels.powers import power
from widenet.kernels.table import runner
from widenet.model.sharding import split
from widenet.plan.shards import Shards, as_slice
from widenet.sparse import SparseBatch, indptr_of
from widenet.spec.layers import OutputLayer

_FRACTION_BITS = 40
"""Similarities are added as multiples of 2^-40: no order, batch or device changes such a sum.

Without `popularity` and order, the float32 similarity of features that occur up to 65,536 times is such a
multiple; others are truncated.
"""
EMPTY = 2**63 - 1
"""The key of an empty place."""
_TERMS = 2**22
"""Similarities that are added together, unless one feature alone has more."""
_COLUMNS = 64
"""Columns are filled up to multiples of this: vector instructions round the rest of a row in another way."""


@dataclass
class Part:
    """The neighbours of the units of a shard, with the same number of places for each unit.

    Attributes:
        key_Z: Neighbour x units of the shard + row of the unit, ascending, int64.
        similarity_Z: float32.
    """

    key_Z: Tensor
    similarity_Z: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by their names in a checkpoint."""
        return {"key": self.key_Z, "similarity": self.similarity_Z}


@dataclass(frozen=True)
class History:
    """Examples of a field as a term reads them.

    Attributes:
        features: E examples, each feature once, with its weight in the mean as value.
        weight_E: Sum of the weights of each example, float64; 1 for one without features.
    """

    features: SparseBatch
    weight_E: Tensor

    @classmethod
    def of(cls, features: SparseBatch) -> "History":
        """Return the history of examples that have each feature once, with weights of at least 1 in all."""
        if features.values is None:
            return cls(features, features.counts().double().clamp_min(1))
        sums_E = torch.zeros(features.num_examples, dtype=torch.int64, device=features.indices.device)
        weight_Z = features.values.double().mul_(2.0**_FRACTION_BITS).long()
        sums_E.index_add_(0, features.example_of_entry(), weight_Z)
        return cls(features, sums_E.double().mul_(2.0**-_FRACTION_BITS).clamp_min(1))


class Neighbourhood:
    """Adds the neighbourhood term to logits; `spec.layers.Neighbourhood` has its formula.

    Attributes:
        shards: Shards of the output's units.
        parts: Neighbours of the shards of this process; empty until `count` or a checkpoint fills them.
    """

    def __init__(self, output: OutputLayer, shards: Shards, exchange: Exchange, device: torch.device) -> None:
        assert output.neighbourhood is not None
        self.field, self.spec, self.shards, self.exchange = (
            output.field,
            output.neighbourhood,
            shards,
            exchange,
        )
        self.parts = dict(exchange.each(lambda shard: (shard, self._blank(shard, device))))

    def _blank(self, shard: int, device: torch.device) -> Part:
        places = self.shards.size(shard) * self.spec.neighbours
        keys = torch.full((places,), EMPTY, dtype=torch.int64, device=device)
        return Part(keys, torch.zeros(places, device=device))

    def history(self, batch: SparseBatch) -> History:
        """Return examples of the field as the term reads them."""
        if not self.spec.in_order:
            return History.of(batch.distinct())
        once = batch.distinct_in_order()
        entries_Z = torch.arange(once.num_entries, device=once.indices.device)
        places_Z = once.indptr[1:][once.example_of_entry()] - entries_Z
        return History.of(once.with_values(1 / places_Z.float()))

    def count(self, dataset: Dataset) -> None:
        """Find the neighbours in the training part of a dataset."""
        number = self.spec.neighbours
        self.exchange.each(lambda shard: self.take(shard, self.found(dataset, shard, number)))

    def found(self, dataset: Dataset, shard: int, number: int) -> Neighbours:
        """Return so many neighbours of each of a shard's units."""
        return neighbours(dataset, self.field, self.shards.units(shard), number, self.spec.order)

    def take(self, shard: int, found: Neighbours) -> None:
        """Take the neighbours of a shard's units, with similarities by the specification."""
        keys = torch.from_numpy(found.features * self.shards.size(shard) + found.positions)
        counts = found.counts
        own_Z = counts[as_slice(self.shards.units(shard))][found.positions]
        factors_Z = power(torch.from_numpy(own_Z / counts.max()), self.spec.popularity).float()
        self._put(shard, keys, torch.from_numpy(found.similarities) * factors_Z)

    def _put(self, shard: int, keys: Tensor, similarities: Tensor) -> None:
        """Let a shard have these neighbours alone, in any order."""
        part, (key_Z, order_Z) = self.parts[shard], torch.sort(keys)
        part.key_Z.fill_(EMPTY)[: len(keys)] = key_Z
        part.similarity_Z.zero_()[: len(keys)] = similarities[order_Z]

    def table(self) -> tuple[Tensor, Tensor]:
        """Return the neighbours of all L units, int64 [L, K], and their similarities, float32, on the host.

        All shards must be at hand. Empty places, the last of each unit, have neighbour L and similarity 0.
        """
        width, places = self.shards.width, self.spec.neighbours
        neighbour_LK, similarity_LK = torch.full((width, places), width), torch.zeros(width, places)
        for shard, part in self.parts.items():
            size, own = self.shards.size(shard), as_slice(self.shards.units(shard))
            key_Z = part.key_Z[part.key_Z != EMPTY].cpu()
            row_Z, order_Z = torch.sort(key_Z % size, stable=True)
            place_Z = torch.arange(len(row_Z)) - torch.searchsorted(row_Z, row_Z)
            neighbour_LK[own][row_Z, place_Z] = (key_Z // size)[order_Z]
            similarity_LK[own][row_Z, place_Z] = part.similarity_Z[: len(key_Z)].cpu()[order_Z]
        return neighbour_LK, similarity_LK

    def fill(self, neighbour_LK: Tensor, similarity_LK: Tensor) -> None:
        """Take the neighbours of a table, as `table` returns it, in place of counting them."""
        for shard in self.parts:
            own = as_slice(self.shards.units(shard))
            row_Z, place_Z = torch.nonzero(neighbour_LK[own] < self.shards.width, as_tuple=True)
            keys = neighbour_LK[own][row_Z, place_Z] * self.shards.size(shard) + row_Z
            self._put(shard, keys, similarity_LK[own][row_Z, place_Z])

    def replace(self, known_L: Tensor, unit_Z: Tensor, neighbour_Z: Tensor, similarity_Z: Tensor) -> None:
        """Give known units these neighbours in place of those that were counted.

        Args:
            known_L: Which units are known, bool.
            unit_Z: Known units of the shards of this process, int64; others are left out.
            neighbour_Z: A neighbour of each, int64.
            similarity_Z: Its similarity, float32.
        """
        for shard, part in self.parts.items():
            size, count = self.shards.size(shard), self.shards.count
            counted_Z = part.key_Z[part.key_Z != EMPTY].cpu()
            is_new_Z = ~known_L[shard + counted_Z % size * count]
            own_Z = unit_Z % count == shard
            keys = torch.cat([counted_Z[is_new_Z], neighbour_Z[own_Z] * size + unit_Z[own_Z] // count])
            similarities = part.similarity_Z[: len(counted_Z)].cpu()[is_new_Z]
            self._put(shard, keys, torch.cat([similarities, similarity_Z[own_Z]]))

    def add(self, logits_ET: Tensor, history: History, shard: int, start: int) -> None:
        """Add the term to the logits of the units from `start` of a shard, in place.

        An example's numbers have the same bits in every batch.

        Args:
            logits_ET: float32.
            history: E examples of the field, on the logits' device.
            shard: A shard of this process.
            start: First unit, as row of the shard.
        """
        units = logits_ET.shape[1]
        if runner("neighbour_means", logits_ET.device) == "native":
            part, size = self.parts[shard], self.shards.size(shard)
            tile = size, start, units, _FRACTION_BITS
            known = history.features, history.weight_E
            cell_N, mean_N = neighbour_means(*known, part.key_Z, part.similarity_Z, *tile)
            # Zeros fill the last vector instruction: a shorter one rounds in another way.
            means = torch.nn.functional.pad(mean_N, (0, -len(mean_N) % _COLUMNS))
            logits_ET[cell_N // units, cell_N % units] += self._terms(means)[: len(cell_N)]
            return
        sums_EC = self._sums(history.features, shard, start, units)
        logits_ET += self._terms(_means(sums_EC, history.weight_E[:, None]))[:, :units]

    def shares(self, history: SparseBatch, shard: int, row: int) -> Tensor:
        """Return what each feature of an example has of the term of a unit, float32 [Z].

        The term is no sum over features. Each has the part that its similarity has in the sum of all.

        Args:
            history: One example of a sparse field, each feature once; on the network's device.
            shard: A shard of this process.
            row: The unit, as row of the shard.
        """
        starts = torch.arange(history.num_entries + 1, device=history.indices.device)
        sums_Z = self._sums(SparseBatch(starts, history.indices), shard, row, 1)[:, 0]
        total = sums_Z.sum(dim=0, keepdim=True)
        term = self._terms(_means(total, torch.full_like(total, max(1, len(sums_Z)))))
        share_Z: Tensor = sums_Z.double() / total.clamp_min(1) * term
        return share_Z.float()

    def _terms(self, means: Tensor) -> Tensor:
        """Return terms, float32, of means of similarities, float64, in the place of which it computes."""
        return means.div_(self.spec.floor).float().log1p_().mul_(self.spec.weight)

    def _sums(self, history: SparseBatch, shard: int, start: int, units: int) -> Tensor:
        """Return the sums of similarities, int64 [E, C], for `units` units and more columns of zeros."""
        part, columns = self.parts[shard], -(-units // _COLUMNS) * _COLUMNS
        first_Z = history.indices.long() * self.shards.size(shard) + start
        low_Z, high_Z = (
            torch.searchsorted(part.key_Z, first_Z),
            torch.searchsorted(part.key_Z, first_Z + units),
        )
        row_Z, counts_Z = history.example_of_entry() * columns, high_Z - low_Z
        sums = torch.zeros(history.num_examples * columns, dtype=torch.int64, device=low_Z.device)
        for span in _spans(counts_Z):
            num_N = counts_Z[span]
            before_N = num_N.cumsum(0) - num_N
            places = torch.repeat_interleave(low_Z[span] - before_N, num_N)
            places += torch.arange(len(places), device=places.device)
            cells = part.key_Z[places] + torch.repeat_interleave(row_Z[span] - first_Z[span], num_N)
            terms = part.similarity_Z[places].double()
            if history.values is not None:
                terms *= torch.repeat_interleave(history.values[span].double(), num_N)
            sums.index_add_(0, cells, terms.mul_(2.0**_FRACTION_BITS).long())
        return sums.view(history.num_examples, columns)


def _means(sums: Tensor, weights: Tensor) -> Tensor:
    """Return means, float64, of sums of similarities."""
    return sums.double().mul_(2.0**-_FRACTION_BITS).div_(weights)


def _spans(counts_Z: Tensor) -> Iterator[slice]:
    """Yield spans of entries with at most `_TERMS` similarities each, or of one entry."""
    ends_Z = counts_Z.cumsum(0)
    start, before = 0, 0
    while start < len(ends_Z):
        limit = torch.tensor([before + _TERMS], device=ends_Z.device)
        stop = max(start + 1, int(torch.searchsorted(ends_Z, limit, right=True)))
        yield slice(start, stop)
        start, before = stop, int(ends_Z[stop - 1])


@dataclass(frozen=True)
class Repeats:
    """The features of E sequences, with the numbers that their logits get.

    Attributes:
        parts: Each feature of a sequence once, as row of its shard, with its number as value; by shard.
    """

    parts: list[SparseBatch]

    @classmethod
    def of(cls, history: SparseBatch, numbers: Sequence[float], shards: Shards) -> "Repeats":
        """Return the repeats of a batch.

        Args:
            history: E sequences.
            numbers: See `OutputLayer.repeats`.
            shards: Shards of the output's units.
        """
        example_Z, entries = history.example_of_entry(), torch.arange(len(history.indices))
        back_Z = history.indptr[1:][example_Z] - 1 - entries.to(example_Z.device)
        # An example and its feature are one integer; it fits, as features have 32 bits, and examples fewer.
        keys_U, places_Z = torch.unique(
            example_Z * shards.width + history.indices.long(), return_inverse=True
        )
        example_U, feature_U = keys_U // shards.width, keys_U % shards.width
        back_U = back_Z.new_full(keys_U.shape, len(back_Z))
        back_U.scatter_reduce_(0, places_Z, back_Z, "amin")
        values_U = torch.tensor(numbers, device=back_U.device)[back_U.clamp_max(len(numbers) - 1)]
        indptr = indptr_of(torch.bincount(example_U, minlength=history.num_examples))
        return cls(split(SparseBatch(indptr, feature_U, values_U), shards))

    def add(self, logits_ET: Tensor, shard: int, start: int) -> None:
        """Add the numbers to the logits of the units from `start` of a shard, float32, in place."""
        part, units = self.parts[shard], logits_ET.shape[1]
        row_Z = part.indices.long() - start
        within_Z = (row_Z >= 0) & (row_Z < units)
        cells = (part.example_of_entry() * units + row_Z)[within_Z]
        logits_ET.view(-1)[cells] += part.values_or_ones()[within_Z]
