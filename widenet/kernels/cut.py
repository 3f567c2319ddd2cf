"""Sorts a batch's entries by shard: in one compiled pass with Numba, else by torch's operations."""

import torch
from torch import Tensor

from widenet.kernels.order import stable_sort
from widenet.kernels.table import runner
from widenet.sparse import SparseBatch, indptr_of


def cut(batch: SparseBatch, num_shards: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort a batch's entries by shard, then example, then storage order.

    Args:
        batch: E examples.
        num_shards: Number of shards; see `plan.shards.Shards`.

    Returns:
        The first entry of every shard and example, int64 [shards x E + 1]; the units, as rows of their
        shards [Z]; and the former position of every entry, int64 [Z].
    """
    if runner("cut", batch.indices.device, batch.num_entries) == "torch":
        return _by_torch(batch, num_shards)
    from widenet.kernels.compiled_sorts import compiled_cut

    bounds = torch.zeros(num_shards * batch.num_examples + 1, dtype=torch.int64)
    units_Z, order_Z = torch.empty_like(batch.indices), torch.empty(batch.num_entries, dtype=torch.int64)
    given = batch.indptr.contiguous().numpy(), batch.indices.contiguous().numpy()
    found = bounds.numpy(), units_Z.numpy(), order_Z.numpy()
    compiled_cut(given[1].dtype.name)(*given, num_shards, *found, torch.empty_like(bounds).numpy())
    return bounds, units_Z, order_Z


def _by_torch(batch: SparseBatch, num_shards: int) -> tuple[Tensor, Tensor, Tensor]:
    num = batch.num_examples
    shard_Z, units_Z = batch.indices % num_shards, batch.indices // num_shards
    order_Z = stable_sort(shard_Z)[1]
    bounds = indptr_of(torch.bincount(shard_Z * num + batch.example_of_entry(), minlength=num_shards * num))
    return bounds, units_Z[order_Z], order_Z
