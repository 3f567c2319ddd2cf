"""Sorts a batch's entries by shard: in one compiled pass with Numba, else by torch's operations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.order import stable_sort
from widenet.kernels.table import runner
from widenet.sparse import SparseBatch, indptr_of


def cut(batch: SparseBatch, starts: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Sort a batch's entries by shard, then example, then storage order.

    Args:
        batch: E examples.
        starts: First unit of each shard, ascending from 0.

    Returns:
        The first entry of every shard and example, int64 [shards x E + 1]; the units, relative to their
        shard's first unit [Z]; and the former position of every entry, int64 [Z].
    """
    starts_S = torch.tensor(starts, device=batch.indices.device)
    if runner("cut", batch.indices.device) == "torch":
        return _by_torch(batch, starts_S)
    put = _compiled(batch.indices.dtype)
    bounds = torch.zeros(len(starts) * batch.num_examples + 1, dtype=torch.int64)
    units_Z, order_Z = torch.empty_like(batch.indices), torch.empty(batch.num_entries, dtype=torch.int64)
    put(
        *(tensor.contiguous().numpy() for tensor in (batch.indptr, batch.indices, starts_S)),
        bounds.numpy(),
        units_Z.numpy(),
        order_Z.numpy(),
    )
    return bounds, units_Z, order_Z


def _by_torch(batch: SparseBatch, starts_S: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    num = batch.num_examples
    shard_Z = torch.bucketize(batch.indices, starts_S[1:].to(batch.indices.dtype), right=True)
    order_Z = stable_sort(shard_Z)[1]
    bounds = indptr_of(
        torch.bincount(shard_Z * num + batch.example_of_entry(), minlength=len(starts_S) * num)
    )
    return bounds, (batch.indices - starts_S[shard_Z].to(batch.indices.dtype))[order_Z], order_Z


@made_once
def _compiled(dtype: torch.dtype) -> Callable[..., None]:
    """Compile `cut` for units int32 or int64; the bounds must be zeros before."""

    def put(indptr: Any, indices_Z: Any, starts_S: Any, bounds: Any, units_Z: Any, order_Z: Any) -> None:
        num, last = len(indptr) - 1, len(starts_S) - 1
        shard_Z = np.empty(len(indices_Z), np.int32)
        for e in range(num):
            shard = 0
            for z in range(indptr[e], indptr[e + 1]):
                while indices_Z[z] < starts_S[shard]:
                    shard -= 1
                while shard < last and indices_Z[z] >= starts_S[shard + 1]:
                    shard += 1
                shard_Z[z] = shard
                bounds[shard * num + e + 1] += 1
        for n in range(len(bounds) - 1):
            bounds[n + 1] += bounds[n]
        next_place = bounds.copy()
        for e in range(num):
            for z in range(indptr[e], indptr[e + 1]):
                shard = shard_Z[z]
                place = next_place[shard * num + e]
                units_Z[place], order_Z[place] = indices_Z[z] - starts_S[shard], z
                next_place[shard * num + e] = place + 1

    number, whole = f"{np.dtype(str(dtype).removeprefix('torch.')).name}[::1]", "int64[::1]"
    return compile_for(put, f"void({whole}, {number}, {whole}, {whole}, {number}, {whole})", number)
