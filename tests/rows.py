"""The rows of wide weights, as they lie in shards, and sparse rows as a matrix."""

import torch


def all_rows(wide):
    """The rows of a wide weight, or the numbers of a bias, in order of units."""
    first = next(iter(wide.parts.values())).weight
    rows = torch.empty(wide.shards.width, *first.shape[1:])
    for shard, part in wide.parts.items():
        rows[shard :: wide.shards.count] = part.weight
    return rows


def dense_rows(batch, width):
    """The matrix of a SparseBatch, float32 [E, width]; duplicates add up."""
    positions = batch.example_of_entry(), batch.indices.long()
    dense = torch.zeros(batch.num_examples, width, device=batch.indices.device)
    return dense.index_put_(positions, batch.values_or_ones(), accumulate=True)
