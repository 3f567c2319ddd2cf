"""A batch cut by shards of units, and the targets of an output by shard and tile."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from widenet.devices import ON_HOST
from widenet.kernels.bags import split, stable_sort
from widenet.kernels.fixed_point import sum_by
from widenet.plan.tiles import Shards, as_slice
from widenet.sparse import SparseBatch, stacked


def joined(parts: Sequence[SparseBatch], shards: Shards, held: Sequence[int]) -> SparseBatch:
    """Return the parts of the shards of a process as one batch.

    It has an example for each shard and example, shard by shard, whose features are rows of
    `WideWeight.whole`, int64.
    """
    return stacked(
        [
            SparseBatch(
                parts[shard].indptr, parts[shard].indices.long() + place * shards.room, parts[shard].values
            )
            for place, shard in enumerate(held)
        ]
    )


@dataclass(frozen=True)
class ByUnit:
    """A shard's entries in ascending order of units, so that a tile's entries are contiguous.

    Attributes:
        examples_Z: int64.
        units_Z: int64.
        values_Z: float32; None: ones.
        host_Z: The units in the host's memory.
    """

    examples_Z: Tensor
    units_Z: Tensor
    values_Z: Tensor | None
    host_Z: Tensor = field(metadata=ON_HOST)

    @classmethod
    def of(cls, part: SparseBatch) -> "ByUnit":
        """Return the sorted entries of one shard's part of a batch."""
        units_Z, order_Z = stable_sort(part.indices)
        values_Z = None if part.values is None else part.values[order_Z]
        return cls(part.example_of_entry()[order_Z], units_Z, values_Z, units_Z)

    def values_or_ones(self, span: slice = slice(None)) -> Tensor:
        """Return the values of a span of entries, float32."""
        units_Z = self.units_Z[span]
        return (
            torch.ones(len(units_Z), device=units_Z.device) if self.values_Z is None else self.values_Z[span]
        )

    def edges(self, starts: list[int]) -> list[int]:
        """Return the first entry whose unit is at least each of `starts`."""
        edges: list[int] = np.searchsorted(self.host_Z.numpy(), starts).tolist()
        return edges


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
        total_E: Sum of each example's values, float32.
        parts: The targets of every shard, in order of units; dense targets have all of its units.
    """

    total_E: Tensor
    parts: list[ByUnit]

    @classmethod
    def of_sparse(cls, batch: SparseBatch, shards: Shards) -> "Targets":
        """Return sparse targets; a batch without values has targets of 1."""
        return cls.of_parts(batch, split(batch, shards.count))

    @classmethod
    def of_parts(cls, batch: SparseBatch, parts: list[SparseBatch]) -> "Targets":
        """Return sparse targets from a batch's parts by shard, with units as their users count them."""
        if batch.values is None:
            total_E = batch.counts().to(torch.float32)
        else:
            total_E = sum_by(batch.values, batch.example_of_entry(), batch.num_examples)
        return cls(total_E, [ByUnit.of(part) for part in parts])

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
        return cls(targets_EL.sum(dim=1), parts)

    def entries(self, shard: int, start: int, stop: int) -> Entries:
        """Return the targets among the units [start, stop) of a shard."""
        part = self.parts[shard]
        span = slice(*part.edges([start, stop]))
        examples_Z = part.examples_Z[span]
        places_Z = examples_Z * (stop - start) + (part.units_Z[span] - start)
        return Entries(span, examples_Z, places_Z, part.values_or_ones(span))

    def of_all_units(self, shards: Shards) -> Entries:
        """Return the targets of all shards, with places in logits [E, L]."""
        cut = [self.entries(shard, 0, shards.size(shard)) for shard in range(shards.count)]
        examples_Z = torch.cat([own.examples_Z for own in cut])
        units_Z = torch.cat(
            [self.parts[shard].units_Z[own.span] * shards.count + shard for shard, own in enumerate(cut)]
        )
        values_Z = torch.cat([own.values_Z for own in cut])
        return Entries(slice(0, len(values_Z)), examples_Z, examples_Z * shards.width + units_Z, values_Z)
