"""The targets of an output in one step, cut by shard and tile."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.fixed_point import sum_by
from widenet.kernels.order import split
from widenet.model.sharding import ByUnit
from widenet.plan.shards import Shards, as_slice
from widenet.sparse import SparseBatch


@dataclass
class Entries:
    """The targets inside one tile, or all units.

    Attributes:
        span: Of a tile, their positions among the shard's entries in order of units.
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
    """Targets of E examples over the units of an output.

    Attributes:
        num_E: Number of targets above zero of each example, float32.
        total_E: Sum of each example's values, float32.
        parts: The targets of every shard, in order of units; dense targets have all of its units.
    """

    num_E: Tensor
    total_E: Tensor
    parts: list[ByUnit]

    @classmethod
    def of_sparse(cls, batch: SparseBatch, shards: Shards) -> "Targets":
        """Return sparse targets; a batch without values has targets of 1."""
        return cls.of_parts(batch, split(batch, shards.count))

    @classmethod
    def of_parts(cls, batch: SparseBatch, parts: list[SparseBatch]) -> "Targets":
        """Return sparse targets from a batch's parts by shard, with units as their users count them."""
        num_E = batch.counts().to(torch.float32)
        total_E = num_E
        if batch.values is not None:
            examples_Z = batch.example_of_entry()
            total_E = sum_by(batch.values, examples_Z, batch.num_examples)
            num_E = sum_by((batch.values > 0).to(torch.float32), examples_Z, batch.num_examples)
        return cls(num_E, total_E, [ByUnit.of(part) for part in parts])

    @classmethod
    def of_dense(cls, targets_EL: Tensor, shards: Shards) -> "Targets":
        """Return dense targets, one for every unit."""
        num_examples = len(targets_EL)
        parts = []
        for shard in range(shards.count):
            own_ER = targets_EL[:, as_slice(shards.units(shard))]
            examples_Z = torch.arange(num_examples).repeat(own_ER.shape[1])
            units_Z = torch.arange(own_ER.shape[1]).repeat_interleave(num_examples)
            parts.append(ByUnit(examples_Z, units_Z, own_ER.T.flatten(), units_Z))
        return cls((targets_EL > 0).sum(dim=1).to(torch.float32), targets_EL.sum(dim=1), parts)

    def num_entries(self, shard: int) -> int:
        """Return the number of a shard's targets."""
        return len(self.parts[shard].units_Z)

    def edges(self, shard: int, tiles: list[tuple[int, int]]) -> list[int]:
        """Return the first entry of each tile among the shard's targets, then the end of the last."""
        return self.parts[shard].edges([start for start, _ in tiles] + [tiles[-1][1]] if tiles else [])

    def entries(self, shard: int, tile: tuple[int, int], span: slice) -> Entries:
        """Return the targets inside one tile, which are at `span` among those of the shard."""
        part, (start, stop) = self.parts[shard], tile
        examples_Z = part.examples_Z[span]
        places_Z = examples_Z * (stop - start) + (part.units_Z[span] - start)
        return Entries(span, examples_Z, places_Z, part.values_or_ones(span))

    def of_all_units(self, shards: Shards) -> Entries:
        """Return the targets of all shards, with places in logits [E, L]."""
        spans = [slice(*self.edges(shard, [(0, shards.size(shard))])) for shard in range(shards.count)]
        cut = [*zip(self.parts, spans, strict=True)]
        examples_Z = torch.cat([part.examples_Z[span] for part, span in cut])
        units_Z = torch.cat(
            [part.units_Z[span] * shards.count + shard for shard, (part, span) in enumerate(cut)]
        )
        values_Z = torch.cat([part.values_or_ones(span) for part, span in cut])
        return Entries(slice(0, len(values_Z)), examples_Z, examples_Z * shards.width + units_Z, values_Z)
