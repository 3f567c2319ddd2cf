"""Stable sorting of integers: a compiled radix sort with Numba, else torch's sort."""

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled_sorts import DIGIT_BITS, compiled_group, compiled_sort
from widenet.kernels.table import runner
from widenet.sparse import indptr_of


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
