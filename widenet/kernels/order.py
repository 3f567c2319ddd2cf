"""Stable sorting of integers, and of a batch's entries by shard: compiled with Numba, else by torch."""

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled_sorts import DIGIT_BITS, compiled_group, compiled_sort
from widenet.kernels.table import runner
from widenet.sparse import SparseBatch, indptr_of


def stable_sort(keys_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Sort integers of at least 0; equal ones keep their order.

    Returns:
        The sorted keys, int64 [Z], and the former position of each, int64 [Z].
    """
    if runner("stable_sort", keys_Z.device, len(keys_Z)) == "torch":
        sorted_Z, order_Z = torch.sort(keys_Z, stable=True)
        return sorted_Z.long(), order_Z
    # Separate tensors, so that the half used as workspace is freed earlier than the result.
    keys = keys_Z.to(torch.int64, copy=True), torch.empty(len(keys_Z), dtype=torch.int64)
    orders = torch.empty_like(keys[0]), torch.empty_like(keys[0])
    arrays = [tensor.numpy() for pair in (keys, orders) for tensor in pair]
    last = compiled_sort()(*arrays, np.empty(1 << DIGIT_BITS, np.int64))
    return keys[last], orders[last]


def grouped(keys_Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort keys as `stable_sort`, and group equal ones.

    Returns:
        The distinct keys [U]; the first entry of each among the sorted entries, int64 [U + 1]; and the former
        position of each entry, int64 [Z].
    """
    sorted_Z, order_Z = stable_sort(keys_Z)
    if runner("stable_sort", keys_Z.device, len(keys_Z)) == "torch":
        keys_U, counts_U = torch.unique_consecutive(sorted_Z, return_counts=True)
        return keys_U, indptr_of(counts_U), order_Z
    keys_U, indptr = torch.empty_like(sorted_Z), torch.empty(len(sorted_Z) + 1, dtype=torch.int64)
    count = compiled_group()(sorted_Z.numpy(), keys_U.numpy(), indptr.numpy())
    return keys_U[:count], indptr[: count + 1], order_Z


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
