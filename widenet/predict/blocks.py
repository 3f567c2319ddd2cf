"""Batches filled up to whole blocks of rows, so that no example's bits depend on how many came with it."""

from collections.abc import Mapping

import torch

from widenet.model.network import Network
from widenet.model.operands import filled
from widenet.model.preparation import Values
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.sparse import SparseBatch


def in_blocks(network: Network, fields: Mapping[str, Values]) -> dict[str, Values]:
    """Return fields with empty examples after theirs, up to a multiple of `PREDICTED_ROWS`.

    Every product then has the same shape, whatever the batch; and functions of single numbers, which some
    instructions compute in groups and round in another way for the rest of a group, have no rest.
    """
    rows = PREDICTED_ROWS[network.device.type]
    return {name: _filled(values, rows) for name, values in fields.items()}


def _filled(values: Values, rows: int) -> Values:
    if not isinstance(values, SparseBatch):
        return filled(values, rows)
    missing = -values.num_examples % rows
    if not missing:
        return values
    ends = values.indptr[-1:].expand(missing)
    return SparseBatch(torch.cat([values.indptr, ends]), values.indices, values.values)


def num_examples(fields: Mapping[str, Values]) -> int:
    """Return the number of examples of a batch, E."""
    values = next(iter(fields.values()))
    return values.num_examples if isinstance(values, SparseBatch) else len(values)
