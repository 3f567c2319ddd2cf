"""Stable sorting of whole numbers: by their digits where Numba is, elsewhere torch's; either gives the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled import can_compile, compile_for, made_once

_DIGIT_BITS = 12


def stable_sort(keys_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers from 0 on in ascending order, int64 [Z], and where each stood, int64 [Z]; equal ones stay in their order."""
    sort = _sort() if keys_Z.device.type == "cpu" else None
    if sort is None:
        sorted_Z, order_Z = torch.sort(keys_Z, stable=True)
        return sorted_Z.long(), order_Z
    sorted_Z, order_Z = keys_Z.to(torch.int64, copy=True), torch.empty(len(keys_Z), dtype=torch.int64)
    sort(sorted_Z.numpy(), order_Z.numpy(), torch.empty_like(sorted_Z).numpy(), torch.empty_like(order_Z).numpy())
    return sorted_Z, order_Z


@made_once
def _sort() -> Callable[..., None] | None:
    """Sorts keys int64 [Z] in place and tells where they stood, given room of the same shapes; None without Numba."""
    if not can_compile():
        return None

    def sort(keys_Z: Any, order_Z: Any, spare_Z: Any, spare_order_Z: Any) -> None:
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
                spare_Z[place_D[d]], spare_order_Z[place_D[d]] = keys_Z[z], order_Z[z]
                place_D[d] += 1
            for z in range(len(keys_Z)):
                keys_Z[z], order_Z[z] = spare_Z[z], spare_order_Z[z]

    row = "int64[::1]"
    return compile_for(sort, f"void({row}, {row}, {row}, {row})")
