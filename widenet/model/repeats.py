"""The repeats of an output: numbers for the logits of features that a sequence has already."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.model.sharding import split
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch, indptr_of


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
