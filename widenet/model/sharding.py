"""Cuts batches by shards of units."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from widenet.devices import ON_HOST
from widenet.kernels.order import stable_sort
from widenet.plan.shards import Shards
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

    def num(self, width: int) -> Tensor:
        """Return the number of entries with units below `width`, int64 [1]; padding has larger units."""
        return torch.searchsorted(
            self.units_Z, torch.full((1,), width, dtype=torch.int64, device=self.units_Z.device)
        )

    def edges(self, starts: list[int]) -> list[int]:
        """Return the first entry whose unit is at least each of `starts`."""
        edges: list[int] = np.searchsorted(self.host_Z.numpy(), starts).tolist()
        return edges
