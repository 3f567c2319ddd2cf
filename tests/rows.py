"""The rows of wide weights, as they lie in shards."""

import torch


def all_rows(wide):
    """The rows of a wide weight, or the numbers of a bias, in order of units."""
    first = next(iter(wide.parts.values())).weight
    rows = torch.empty(wide.shards.width, *first.shape[1:])
    for shard, part in wide.parts.items():
        rows[shard :: wide.shards.count] = part.weight
    return rows
