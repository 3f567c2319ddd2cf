"""Stable sorting of integers: a compiled radix sort with Numba, else torch's sort."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.table import runner
from widenet.sparse import indptr_of

_DIGIT_BITS = 12


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
    last = _sort()(*(tensor.numpy() for pair in (keys, orders) for tensor in pair))
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
    count = _group()(sorted_Z.numpy(), keys_U.numpy(), indptr.numpy())
    return keys_U[:count], indptr[: count + 1], order_Z


@made_once
def _group() -> Callable[..., int]:
    """Compile a function that writes distinct keys and their first entries, and returns their number."""

    def group(sorted_Z: Any, keys_U: Any, indptr: Any) -> int:
        count = 0
        for z in range(len(sorted_Z)):
            if z == 0 or sorted_Z[z] != sorted_Z[z - 1]:
                keys_U[count], indptr[count] = sorted_Z[z], z
                count += 1
        indptr[count] = len(sorted_Z)
        return count

    row = "int64[::1]"
    return compile_for(group, f"int64({row}, {row}, {row})")


@made_once
def _sort() -> Callable[..., int]:
    """Compile a radix sort.

    It takes two buffers for keys, the first filled, and two for positions, all int64 [Z], and returns which
    buffer of each pair holds the result.
    """

    def sort(keys_Z: Any, next_Z: Any, order_Z: Any, next_order_Z: Any) -> int:
        most = 0
        for z in range(len(keys_Z)):
            order_Z[z] = z
            most = max(most, keys_Z[z])
        bits = 1
        while most >> bits > 0:
            bits += 1
        passes = (bits + _DIGIT_BITS - 1) // _DIGIT_BITS
        digit_bits = (bits + passes - 1) // passes
        place_D = np.empty(1 << digit_bits, np.int64)
        for number in range(passes):
            shift, digit = number * digit_bits, (1 << digit_bits) - 1
            for d in range(len(place_D)):
                place_D[d] = 0
            for z in range(len(keys_Z)):
                place_D[(keys_Z[z] >> shift) & digit] += 1
            before = 0
            for d in range(len(place_D)):
                count, place_D[d] = place_D[d], before
                before += count
            for z in range(len(keys_Z)):
                d = (keys_Z[z] >> shift) & digit
                next_Z[place_D[d]], next_order_Z[place_D[d]] = keys_Z[z], order_Z[z]
                place_D[d] += 1
            keys_Z, next_Z = next_Z, keys_Z
            order_Z, next_order_Z = next_order_Z, order_Z
        return passes % 2

    row = "int64[::1]"
    return compile_for(sort, f"int64({row}, {row}, {row}, {row})")
