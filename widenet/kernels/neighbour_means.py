"""The features that occurred most with the units of a shard, and means of their similarities."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.native import call, check_dtypes, library_runs
from widenet.sparse import SparseBatch

FRACTION_BITS = 40
"""Similarities are added as multiples of 2^-40: no order, batch or device changes such a sum.

Without `popularity` and order, the float32 similarity of features that occur up to 65,536 times is such a
multiple; others are truncated.
"""
EMPTY = 2**63 - 1
"""The key of an empty place."""
_TERMS = 2**22
"""Similarities that torch adds together, unless one feature alone has more."""


@dataclass
class NeighbourLists:
    """The neighbours of the units of a shard, with the same number of places for each unit.

    Attributes:
        units: The units.
        key_Z: Neighbour x units of the shard + row of the unit, ascending, int64.
        similarity_Z: float32.
    """

    units: range
    key_Z: Tensor
    similarity_Z: Tensor

    @classmethod
    def blank(cls, units: range, places: int, device: torch.device) -> "NeighbourLists":
        """Return lists with so many empty places for each unit."""
        keys = torch.full((places * len(units),), EMPTY, dtype=torch.int64, device=device)
        return cls(units, keys, torch.zeros(len(keys), device=device))

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by their names in a checkpoint."""
        return {"key": self.key_Z, "similarity": self.similarity_Z}

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return units, int64, a neighbour of each, int64, and similarities, float32, on the host."""
        key_Z, size = self.key_Z[self.key_Z != EMPTY].cpu(), len(self.units)
        unit_Z = self.units.start + key_Z % size * self.units.step
        return unit_Z, key_Z // size, self.similarity_Z[: len(key_Z)].cpu()

    def fill(self, unit_Z: Tensor, neighbour_Z: Tensor, similarity_Z: Tensor) -> None:
        """Take entries as `entries` returns them, in any order, but for those of other shards."""
        own_Z = (unit_Z - self.units.start) % self.units.step == 0
        row_Z = (unit_Z[own_Z] - self.units.start) // self.units.step
        key_Z, order_Z = torch.sort(neighbour_Z[own_Z] * len(self.units) + row_Z)
        self.key_Z.fill_(EMPTY)[: len(key_Z)] = key_Z
        self.similarity_Z.zero_()[: len(key_Z)] = similarity_Z[own_Z][order_Z]

    def means(
        self, history: SparseBatch, weight_E: Tensor, start: int, num_units: int
    ) -> tuple[Tensor, Tensor]:
        """Return the cells [E, `num_units`] of a tile whose mean similarity is not zero, and their means.

        Args:
            history: E examples, each feature once, with its weight as value.
            weight_E: Sum of the weights of each example, float64.
            start: First unit, as row of the shard.
            num_units: Number of units.

        Returns:
            Example x `num_units` + unit, int64 [N], and the means, float64 [N].
        """
        if not library_runs(self.key_Z.device):
            sums = self._sums(history, start, num_units)
            cell_N = sums.nonzero()[:, 0]
            mean_N = sums[cell_N].double().mul_(2.0**-FRACTION_BITS)
            return cell_N, mean_N.div_(weight_E[cell_N // num_units])
        cell_N = torch.empty(history.num_examples * num_units, dtype=torch.int64)
        mean_N = torch.empty(len(cell_N), dtype=torch.float64)
        values_Z = history.values_or_ones()
        examples = history.indptr, history.num_examples, history.indices.long(), values_Z, weight_E
        floats, integers = (values_Z, self.similarity_Z), (history.indptr, self.key_Z)
        check_dtypes(float32=floats, float64=[weight_E], int64=integers)
        lists = self.key_Z, self.similarity_Z, len(self.key_Z), len(self.units)
        tile = start, num_units, 2.0**FRACTION_BITS
        number = call("neighbour_means", *examples, *lists, *tile, cell_N, mean_N)
        return cell_N[:number], mean_N[:number]

    def _sums(self, history: SparseBatch, start: int, num_units: int) -> Tensor:
        """Return the sums of similarities as whole numbers, int64 [E x `num_units`]."""
        first_Z = history.indices.long() * len(self.units) + start
        low_Z = torch.searchsorted(self.key_Z, first_Z)
        counts_Z = torch.searchsorted(self.key_Z, first_Z + num_units) - low_Z
        row_Z, weights_Z = history.example_of_entry() * num_units, history.values_or_ones().double()
        sums = torch.zeros(history.num_examples * num_units, dtype=torch.int64, device=low_Z.device)
        for span in _spans(counts_Z):
            num_N = counts_Z[span]
            places = torch.repeat_interleave(low_Z[span] - (num_N.cumsum(0) - num_N), num_N)
            places += torch.arange(len(places), device=places.device)
            cells = self.key_Z[places] + torch.repeat_interleave(row_Z[span] - first_Z[span], num_N)
            terms = self.similarity_Z[places].double() * torch.repeat_interleave(weights_Z[span], num_N)
            sums.index_add_(0, cells, terms.mul_(2.0**FRACTION_BITS).long())
        return sums


def _spans(counts_Z: Tensor) -> Iterator[slice]:
    """Yield spans of entries with at most `_TERMS` similarities each, or of one entry."""
    ends_Z = counts_Z.cumsum(0)
    start, before = 0, 0
    while start < len(ends_Z):
        limit = torch.tensor([before + _TERMS], device=ends_Z.device)
        stop = max(start + 1, int(torch.searchsorted(ends_Z, limit, right=True)))
        yield slice(start, stop)
        start, before = stop, int(ends_Z[stop - 1])
