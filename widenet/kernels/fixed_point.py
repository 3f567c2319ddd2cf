"""Sums that do not depend on the order of addition: in 64-bit fixed point, with a scale for every row."""

from collections.abc import Callable, Sequence
from math import frexp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.table import runner
from widenet.plan.tiles import blocks

_BITS = 62
_DOUBLE_BIAS = 1023
_DOUBLE_MANTISSA_BITS = 52
_LARGEST_EXPONENT = 1000


def peaks_of(term: Tensor) -> Tensor:
    """Return the largest magnitude of every row, float64; infinite if the row holds infinity or NaN.

    The rows of a term [E, H] lie along its last dimension, and the result is [E, 1]; in a term with fewer
    dimensions each number is a row.
    """
    if term.dim() >= 2 and not term.shape[-1]:
        return torch.zeros(*term.shape[:-1], 1, dtype=torch.float64, device=term.device)
    magnitude = term.abs() if term.dim() < 2 else term.abs().amax(dim=-1, keepdim=True)
    return magnitude.double().nan_to_num(nan=torch.inf, posinf=torch.inf)


def scales_for(peaks: Tensor, num_terms: int | Tensor) -> Tensor:
    """Return powers of two, float64, that scale terms up to `peaks` so that `num_terms` add up to 63 bits.

    `num_terms` is int64 [1] if only the device knows it.
    """
    known = torch.where(torch.isfinite(peaks), peaks, 0.0)
    if isinstance(num_terms, Tensor):
        headroom: int | Tensor = torch.frexp((num_terms - 1).clamp_min(0).double()).exponent
    else:
        headroom = max(num_terms - 1, 0).bit_length()
    exponent = (_BITS - headroom - torch.frexp(known).exponent).clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    return ((exponent.long() + _DOUBLE_BIAS) << _DOUBLE_MANTISSA_BITS).view(torch.float64)


def to_fixed(term: Tensor, scales: Tensor) -> Tensor:
    """Return a term in units of 1 / scale, int64, truncated."""
    return (term.to(torch.float64) * scales).to(torch.int64)


def fixed_sum(terms: Sequence[Tensor], scales: Tensor) -> Tensor:
    """Return the sum of equally shaped terms in units of 1 / scale, int64."""
    chosen = runner("fixed_sum", terms[0].device)
    if chosen == "triton":
        from widenet.kernels.triton.fixed_point import fixed_sum as launched

        return launched(terms, scales)
    if chosen == "torch" or terms[0].dim() != 2:
        total = to_fixed(terms[0], scales)
        for term in terms[1:]:
            total += to_fixed(term, scales)
        return total
    add = compiled_add(str(terms[0].dtype).rpartition(".")[2])
    total = torch.zeros(terms[0].shape, dtype=torch.int64)
    arrays = [term.contiguous().numpy() for term in (total, scales, *terms)]
    for start, stop in blocks(len(total), total.shape[1], "cpu"):
        total_BH, scale_B1, *terms_BH = (array[start:stop] for array in arrays)
        for term_BH in terms_BH:
            add(total_BH, term_BH, scale_B1)
    return total


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


def from_fixed(total: Tensor, scales: Tensor, peaks: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers that an int64 total represents; NaN where the peak is infinite."""
    return total.to(torch.float64).div_(scales).masked_fill_(~torch.isfinite(peaks), torch.nan).to(dtype)


def sum_by(values_Z: Tensor, groups_Z: Tensor, num_groups: int, num_terms: Tensor | None = None) -> Tensor:
    """Return the sum of each group's values: the same bits in every order of the values, on every device.

    Args:
        values_Z: Floats.
        groups_Z: int64, each in [0, num_groups).
        num_groups: Number of groups.
        num_terms: Number of values that count if the rest are zeros, int64 [1]; None: all.

    Returns:
        [num_groups] of the values' type. Each group is truncated, or NaN, as a row of `exact_sum`.
    """
    peaks = torch.zeros(num_groups, dtype=torch.float64, device=values_Z.device)
    peaks.scatter_reduce_(0, groups_Z, peaks_of(values_Z), "amax")
    scales = scales_for(peaks, len(values_Z) if num_terms is None else num_terms)
    total = torch.zeros(num_groups, dtype=torch.int64, device=values_Z.device)
    total.index_add_(0, groups_Z, to_fixed(values_Z, scales[groups_Z]))
    return from_fixed(total, scales, peaks, values_Z.dtype)


def exact_sum(terms: Sequence[Tensor]) -> Tensor:
    """Return the sum of equally shaped float tensors: the same bits in every order of the terms.

    Each row (`peaks_of`) has its own scale. Each term is truncated to multiples of the row's largest
    magnitude in all terms, times 2^-60, times the number of terms. The sum is rounded to float64, then to the
    terms' type. A row with an infinity or NaN in any term becomes NaN.
    """
    if terms[0].dim() == 2 and runner("exact_sum", terms[0].device) == "numba":
        add_up = _compiled_sum(terms[0].dtype)
        total = torch.empty(terms[0].shape, dtype=terms[0].dtype)
        for start, stop in blocks(len(total), total.shape[1], "cpu"):
            add_up(torch.stack([term[start:stop] for term in terms]).numpy(), total[start:stop].numpy())
        return total
    peaks = torch.stack([peaks_of(term) for term in terms]).amax(dim=0)
    scales = scales_for(peaks, len(terms))
    return from_fixed(fixed_sum(terms, scales), scales, peaks, terms[0].dtype)


@made_once
def _compiled_sum(dtype: torch.dtype) -> Callable[[Any, Any], None]:
    """Compile a function that writes the exact sum [E, H] of terms [K, E, H], a row at a time.

    It compares magnitudes as integers: without the sign, the bits of floats have the same order, with NaN
    above infinity.
    """
    number, whole = (np.float32, np.int32) if dtype == torch.float32 else (np.float64, np.int64)
    magnitude = 2 ** (8 * np.dtype(whole).itemsize - 1) - 1
    infinity = int(np.array(np.inf, number).view(whole))

    def add_up(terms: Any, total: Any) -> None:
        bits, most = terms.view(whole), np.empty(1, whole)
        headroom = 0
        while terms.shape[0] - 1 >> headroom > 0:
            headroom += 1
        sum_H = np.empty(terms.shape[2], np.int64)
        for e in range(terms.shape[1]):
            peak = whole(0)
            for k in range(terms.shape[0]):
                for h in range(terms.shape[2]):
                    size = whole(bits[k, e, h] & magnitude)
                    peak = size if size > peak else peak
            if peak >= infinity:
                total[e] = np.nan
                continue
            most[0] = peak
            exponent = _BITS - headroom - frexp(np.float64(most.view(number)[0]))[1]
            exponent = min(max(exponent, -_LARGEST_EXPONENT), _LARGEST_EXPONENT)
            scale = np.int64((exponent + _DOUBLE_BIAS) << _DOUBLE_MANTISSA_BITS).view(np.float64)
            sum_H[:] = 0
            for k in range(terms.shape[0]):
                for h in range(terms.shape[2]):
                    sum_H[h] += np.int64(np.float64(terms[k, e, h]) * scale)
            for h in range(terms.shape[2]):
                total[e, h] = np.float64(sum_H[h]) / scale

    name = np.dtype(number).name
    return compile_for(add_up, f"void({name}[:, :, ::1], {name}[:, ::1])", name)
