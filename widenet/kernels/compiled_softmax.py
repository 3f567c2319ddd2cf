"""The divisor of a softmax, compiled for CPUs: `reference.softmax_sum` to the bit. Needs Numba."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from widenet.kernels import compiled_products, constants
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import view

if TYPE_CHECKING:
    from torch import Tensor

_LEAST, _PER_LOG_TWO, _TO_WHOLE = map(
    np.float32, (constants.LEAST, constants.PER_LOG_TWO, constants.TO_WHOLE)
)
_C5, _C4, _C3, _C2, _C1, _C0 = map(np.float32, constants.POWER_OF_TWO)
_PIECE, _HALF, _EXPONENT = constants.PIECE, constants.PIECE // 2, np.int32(23)
_MAGNITUDE, _LOWEST = np.int32(2**31 - 1), np.int32(-(2**31))
_SIGN, _INFINITE = np.int32(31), np.int32(0x7F800000)


@register_jitable
def _exponential(x: Any) -> Any:
    """Return exp(x) for x up to about 0; see `reference.softmax_sum`."""
    x = _LEAST if x < _LEAST else x
    power = x * _PER_LOG_TWO
    shifted = np.float32(power + _TO_WHOLE)
    f = power - (shifted - _TO_WHOLE)
    series = np.float32(((((_C5 * f + _C4) * f + _C3) * f + _C2) * f + _C1) * f + _C0)
    return np.int32(series.view(np.int32) + (shifted.view(np.int32) << _EXPONENT)).view(np.float32)


@register_jitable
def _largest(logit_T: Any) -> Any:
    """Return the largest logit, compared as an integer of the same order: several at once; NaN if one is."""
    largest, magnitude, bits_T = _LOWEST, np.int32(0), logit_T.view(np.int32)
    for t in range(len(bits_T)):
        largest = max(largest, np.int32(bits_T[t] ^ ((bits_T[t] >> _SIGN) & _MAGNITUDE)))
        magnitude = max(magnitude, np.int32(bits_T[t] & _MAGNITUDE))
    if magnitude > _INFINITE:  # the sign of a NaN may be any
        return np.float32(np.nan)
    return np.int32(largest ^ ((largest >> _SIGN) & _MAGNITUDE)).view(np.float32)


@register_jitable
def _sum_of_piece(logit_P: Any, peak: Any, share_P: Any) -> Any:
    """Return the sum of exp(z - peak) over a piece; overwrites `share_P`."""
    for p in range(_HALF):
        share_P[p] = _exponential(logit_P[p] - peak) + _exponential(logit_P[p + _HALF] - peak)
    for p in range(64):
        share_P[p] += share_P[p + 64]
    for p in range(32):
        share_P[p] += share_P[p + 32]
    for p in range(16):
        share_P[p] += share_P[p + 16]
    for p in range(8):
        share_P[p] += share_P[p + 8]
    a, b, c, d = share_P[0], share_P[1], share_P[2], share_P[3]
    low = (np.float64(a) + np.float64(b)) + (np.float64(c) + np.float64(d))
    a, b, c, d = share_P[4], share_P[5], share_P[6], share_P[7]
    return low + ((np.float64(a) + np.float64(b)) + (np.float64(c) + np.float64(d)))


@register_jitable
def row_sum(logit_T: Any, share_P: Any, rest_P: Any) -> Any:
    """Return the largest logit and the sum of exp(z - largest); overwrites two arrays [PIECE] of float32."""
    peak, total, whole = _largest(logit_T), 0.0, len(logit_T) // _PIECE * _PIECE
    for start in range(0, whole, _PIECE):
        total += _sum_of_piece(view(logit_T, start, (_PIECE,)), peak, share_P)
    rest = len(logit_T) - whole
    if rest > 0:
        rest_P[:rest] = logit_T[whole:]
        rest_P[rest:] = -np.inf
        total += _sum_of_piece(rest_P, peak, share_P)
    return peak, total


def sources() -> list[str]:
    """Return what the code of `row_sum` depends on, for `compile_for`."""
    return [
        Path(path).read_text("utf-8") for path in (__file__, constants.__file__, compiled_products.__file__)
    ]


@made_once
def compiled_softmax_sum() -> Callable[..., None]:
    """Compile `softmax_sum`, which writes its results into arrays."""

    def sums(logits_ET: Any, peak_E: Any, sum_E: Any) -> None:
        share_P, rest_P = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.float32)
        for e in range(len(logits_ET)):
            peak_E[e], sum_E[e] = row_sum(logits_ET[e], share_P, rest_P)

    return compile_for(sums, "void(float32[:, ::1], float32[::1], float64[::1])", *sources())


def softmax_sum(logits_ET: "Tensor") -> "tuple[Tensor, Tensor]":
    """See `reference.softmax_sum`."""
    import torch  # compiling needs none, and it takes seconds to load

    peak_E, sum_E = np.empty(len(logits_ET), np.float32), np.empty(len(logits_ET), np.float64)
    compiled_softmax_sum()(logits_ET.contiguous().numpy(), peak_E, sum_E)
    return torch.from_numpy(peak_E), torch.from_numpy(sum_E)
