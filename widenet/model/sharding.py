"""Batches cut by shards of units."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import cut, stable_sort
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch


def split(batch: SparseBatch, shards: Shards) -> list[SparseBatch]:
    """The batch cut by units: for every shard its entries, in storage order, with units counted from the
    shard's start.
    """
    bounds, units_Z, order_Z = cut(batch, [shards.start(shard) for shard in range(shards.count)])
    values_Z = None if batch.values is None else batch.values[order_Z]
    num, parts = batch.num_examples, []
    edges = bounds[:: max(num, 1)].tolist() if num else [0] * (shards.count + 1)
    for shard in range(shards.count):
        span = slice(edges[shard], edges[shard + 1])
        indptr = bounds[shard * num : (shard + 1) * num + 1] - edges[shard]
        parts.append(
            SparseBatch(indptr, _piece(units_Z, span), None if values_Z is None else _piece(values_Z, span))
        )
    return parts


def _piece(whole_Z: Tensor, span: slice) -> Tensor:
    """A span of a tensor; on a CPU the same memory, on a device its own, whose beginning is aligned:
    kernels are compiled for that.
    """
    piece_Z = whole_Z[span]
    return piece_Z if piece_Z.device.type == "cpu" else piece_Z.clone()


@dataclass(frozen=True)
class ByUnit:
    """A shard's entries in ascending order of units, so that a tile's entries lie together.

    host_Z: the units once more where the host reads them; on a CPU the same memory.
    """

    examples_Z: Tensor
    units_Z: Tensor
    values_Z: Tensor | None
    host_Z: Tensor

    @classmethod
    def of(cls, part: SparseBatch) -> "ByUnit":
        """The entries of one shard's part of a batch."""
        units_Z, order_Z = stable_sort(part.indices)
        values_Z = None if part.values is None else part.values[order_Z]
        return cls(part.example_of_entry()[order_Z], units_Z, values_Z, units_Z.cpu())

    def values_or_ones(self, span: slice = slice(None)) -> Tensor:
        """float32, of a span of the entries."""
        units_Z = self.units_Z[span]
        return (
            torch.ones(len(units_Z), device=units_Z.device) if self.values_Z is None else self.values_Z[span]
        )

    def num(self, width: int) -> Tensor:
        """How many entries are of units below `width`, int64 [1]; where a batch is padded, others have no
        effect.
        """
        return torch.searchsorted(
            self.units_Z, torch.full((1,), width, dtype=torch.int64, device=self.units_Z.device)
        )

    def edges(self, starts: list[int]) -> list[int]:
        """Where the entries of units from each start on begin."""
        return torch.searchsorted(self.host_Z, torch.tensor(starts)).tolist()
