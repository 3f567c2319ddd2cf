"""Exact sums in 64-bit fixed point, compiled for CPUs. `fixed_point` says what they compute."""

from collections.abc import Callable
from math import frexp
from typing import Any

import numpy as np

from widenet.kernels.compiled import compile_for, made_once

BITS = 62
DOUBLE_BIAS = 1023
DOUBLE_MANTISSA_BITS = 52
LARGEST_EXPONENT = 1000


@made_once
def compiled_add(dtype: str) -> Callable[[Any, Any, Any], None]:
    """Compile a function that adds an array [E, H], scaled by float64 [E, 1], to an int64 array.

    Its integers are those of `to_fixed`: each product is rounded once, then truncated. `dtype` is "float32"
    or "float64".
    """

    def add(total_EH: Any, term_EH: Any, scale_E1: Any) -> None:
        for e in range(total_EH.shape[0]):
            scale = scale_E1[e, 0]
            for h in range(total_EH.shape[1]):
                total_EH[e, h] += np.int64(np.float64(term_EH[e, h]) * scale)

    return compile_for(add, f"void(int64[:, ::1], {dtype}[:, ::1], float64[:, ::1])")


@made_once
def compiled_sum(dtype: str) -> Callable[..., None]:
    """Compile a function that writes the exact sum [E, H] of terms [K, E, H], a row at a time.

    It also takes the terms' bits, which are integers of the same size, and room for int64 [H]. It compares
    magnitudes as integers: without the sign, the bits of floats have the same order, with NaN above infinity.
    `dtype` is "float32" or "float64".
    """
    number, whole = (np.float32, np.int32) if dtype == "float32" else (np.float64, np.int64)
    magnitude = 2 ** (8 * np.dtype(whole).itemsize - 1) - 1
    infinity = int(np.array(np.inf, number).view(whole))

    def add_up(terms: Any, bits: Any, total: Any, sum_H: Any) -> None:
        headroom = 0
        while terms.shape[0] - 1 >> headroom > 0:
            headroom += 1
        for e in range(terms.shape[1]):
            peak = whole(0)
            for k in range(terms.shape[0]):
                for h in range(terms.shape[2]):
                    size = whole(bits[k, e, h] & magnitude)
                    peak = size if size > peak else peak
            if peak >= infinity:
                for h in range(terms.shape[2]):
                    total[e, h] = np.nan
                continue
            exponent = BITS - headroom - frexp(np.float64(whole(peak).view(number)))[1]
            exponent = LARGEST_EXPONENT if exponent > LARGEST_EXPONENT else exponent
            exponent = -LARGEST_EXPONENT if exponent < -LARGEST_EXPONENT else exponent
            scale = np.int64((exponent + DOUBLE_BIAS) << DOUBLE_MANTISSA_BITS).view(np.float64)
            for h in range(terms.shape[2]):
                sum_H[h] = 0
            for k in range(terms.shape[0]):
                for h in range(terms.shape[2]):
                    sum_H[h] += np.int64(np.float64(terms[k, e, h]) * scale)
            for h in range(terms.shape[2]):
                total[e, h] = np.float64(sum_H[h]) / scale

    bits = np.dtype(whole).name
    signature = f"void({dtype}[:, :, ::1], {bits}[:, :, ::1], {dtype}[:, ::1], int64[::1])"
    return compile_for(add_up, signature, dtype)
