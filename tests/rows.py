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


def wide_top_k(logits_EL, excluded, k):
    """The k largest logits of every example and their units, the lower of equal units first."""
    logits_EL = logits_EL.clone()
    if excluded is not None:
        logits_EL[excluded.example_of_entry(), excluded.indices.long()] = -torch.inf
    top_EK, units_EK = torch.sort(logits_EL, dim=1, descending=True, stable=True)
    top_EK, units_EK = top_EK[:, :k], units_EK[:, :k]
    return top_EK, torch.where(top_EK == -torch.inf, -1, units_EK)
