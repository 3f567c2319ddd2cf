"""The targets of an output in one step, cut by shard and tile."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.fixed_point import sum_by
from widenet.model.sharding import ByUnit, split
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch, indptr_of


@dataclass
class TileEntries:
    """The sparse targets inside one tile.

    Attributes:
        span: Their positions among the shard's entries in order of units.
        examples_Z: int64.
        places_Z: Positions in the flat tile, int64.
        values_Z: float32.
    """

    span: slice
    examples_Z: Tensor
    places_Z: Tensor
    values_Z: Tensor


@dataclass
class Targets:
    """Targets of E examples over the units of an output: sparse by shard, or dense.

    Attributes:
        num_E: Number of targets above zero of each example, float32.
        total_E: Sum of each example's stored values, float32.
        sparse: Sparse targets, by shard.
        dense_EL: Dense targets.
    """

    num_E: Tensor
    total_E: Tensor
    sparse: list[ByUnit] | None = None
    dense_EL: Tensor | None = None

    @classmethod
    def of_sparse(cls, batch: SparseBatch, shards: Shards) -> "Targets":
        """Return sparse targets; a batch without values has targets of 1."""
        return cls.of_parts(batch, split(batch, shards))

    @classmethod
    def of_parts(cls, batch: SparseBatch, parts: list[SparseBatch]) -> "Targets":
        """Return sparse targets from a batch's parts by shard, with units as their users count them."""
        num_E = batch.counts().to(torch.float32)
        total_E = num_E
        if batch.values is not None:
            examples_Z = batch.example_of_entry()
            total_E = sum_by(batch.values, examples_Z, batch.num_examples)
            num_E = sum_by((batch.values > 0).to(torch.float32), examples_Z, batch.num_examples)
        return cls(num_E, total_E, sparse=[ByUnit.of(part) for part in parts])

    @classmethod
    def of_dense(cls, targets_EL: Tensor) -> "Targets":
        """Return dense targets, one for every unit."""
        return cls((targets_EL > 0).sum(dim=1).to(torch.float32), targets_EL.sum(dim=1), dense_EL=targets_EL)

    @classmethod
    def of_dense_as_sparse(cls, targets_EL: Tensor, shards: Shards) -> "Targets":
        """Return the dense targets that are not zero, as sparse ones."""
        examples_Z, units_Z = torch.nonzero(targets_EL, as_tuple=True)
        indptr = indptr_of(torch.bincount(examples_Z, minlength=len(targets_EL)))
        return cls.of_sparse(SparseBatch(indptr, units_Z, targets_EL[examples_Z, units_Z]), shards)

    def num_entries(self, shard: int) -> int:
        """Return the number of a shard's sparse targets."""
        return len(self.by_unit(shard).units_Z)

    def by_unit(self, shard: int) -> ByUnit:
        """Return the sparse targets of a shard, in order of units."""
        assert self.sparse is not None
        return self.sparse[shard]

    def edges(self, shard: int, tiles: list[tuple[int, int]]) -> list[int]:
        """Return the first entry of each tile among the shard's sparse targets, then the end of the last."""
        assert self.sparse is not None
        return self.sparse[shard].edges([start for start, _ in tiles] + [tiles[-1][1]] if tiles else [])

    def entries(self, shard: int, tile: tuple[int, int], span: slice) -> TileEntries:
        """Return the sparse targets inside one tile, which are at `span` among those of the shard."""
        assert self.sparse is not None
        part, (start, stop) = self.sparse[shard], tile
        examples_Z = part.examples_Z[span]
        places_Z = examples_Z * (stop - start) + (part.units_Z[span] - start)
        return TileEntries(span, examples_Z, places_Z, part.values_or_ones(span))
