"""Stable sorting of integers, and of a batch's entries by shard: natively, else by torch."""

import torch
from torch import Tensor

from widenet.kernels.native import call, check_dtype
from widenet.kernels.table import runner
from widenet.sparse import SparseBatch, indptr_of


def stable_sort(keys_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Sort integers of at least 0; equal ones keep their order.

    Returns:
        The sorted keys, int64 [Z], and the former position of each, int64 [Z].
    """
    if runner("stable_sort", keys_Z.device) == "torch":
        sorted_Z, order_Z = torch.sort(keys_Z, stable=True)
        return sorted_Z.long(), order_Z
    # Separate tensors, so that the half used as workspace is freed earlier than the result.
    keys = keys_Z.to(torch.int64, copy=True), torch.empty(len(keys_Z), dtype=torch.int64)
    orders = torch.empty_like(keys[0]), torch.empty_like(keys[0])
    last = call("sort", keys, orders, len(keys_Z))
    return keys[last], orders[last]


def grouped(keys_Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort keys as `stable_sort`, and group equal ones.

    Returns:
        The distinct keys [U]; the first entry of each among the sorted entries, int64 [U + 1]; and the former
        position of each entry, int64 [Z].
    """
    sorted_Z, order_Z = stable_sort(keys_Z)
    if runner("stable_sort", keys_Z.device) == "torch":
        keys_U, counts_U = torch.unique_consecutive(sorted_Z, return_counts=True)
        return keys_U, indptr_of(counts_U), order_Z
    keys_U, indptr = torch.empty_like(sorted_Z), torch.empty(len(sorted_Z) + 1, dtype=torch.int64)
    count = call("group", sorted_Z, len(sorted_Z), keys_U, indptr)
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
    if runner("cut", batch.indices.device) == "torch":
        return _by_torch(batch, num_shards)
    bounds = torch.empty(num_shards * batch.num_examples + 1, dtype=torch.int64)
    units_Z, order_Z = torch.empty_like(batch.indices), torch.empty(batch.num_entries, dtype=torch.int64)
    indices_Z, dtype = batch.indices.contiguous(), str(batch.indices.dtype).rpartition(".")[2]
    given = batch.indptr.contiguous(), batch.num_examples, indices_Z, num_shards
    check_dtype(torch.int64, batch.indptr)
    call(f"cut_{dtype}", *given, bounds, units_Z, order_Z)
    return bounds, units_Z, order_Z


def split(batch: SparseBatch, num_shards: int) -> list[SparseBatch]:
    """Return each shard's entries of a batch, in storage order, with units as rows of the shard."""
    bounds, units_Z, order_Z = cut(batch, num_shards)
    values_Z = None if batch.values is None else batch.values[order_Z]
    num, parts = batch.num_examples, []
    edges = bounds[:: max(num, 1)].tolist() if num else [0] * (num_shards + 1)
    for shard in range(num_shards):
        span = slice(edges[shard], edges[shard + 1])
        indptr = bounds[shard * num : (shard + 1) * num + 1] - edges[shard]
        parts.append(SparseBatch(indptr, units_Z[span], None if values_Z is None else values_Z[span]))
    return parts


def _by_torch(batch: SparseBatch, num_shards: int) -> tuple[Tensor, Tensor, Tensor]:
    num = batch.num_examples
    shard_Z, units_Z = batch.indices % num_shards, batch.indices // num_shards
    order_Z = stable_sort(shard_Z)[1]
    bounds = indptr_of(torch.bincount(shard_Z * num + batch.example_of_entry(), minlength=num_shards * num))
    return bounds, units_Z[order_Z], order_Z
