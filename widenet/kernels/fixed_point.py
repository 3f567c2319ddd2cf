"""Sums whose result does not depend on the order of addition: 64-bit fixed point."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_BITS = 62


def scale_for(peak: float, num_terms: int) -> float:
    """The power of two that turns terms up to `peak` into integers whose sum of `num_terms` fits 63 bits."""
    if peak == 0.0 or not math.isfinite(peak):
        return 1.0
    exponent = math.frexp(peak)[1]
    headroom = max(num_terms - 1, 0).bit_length()
    return math.ldexp(1.0, min(_BITS - headroom - exponent, 1000))


def to_fixed(term: Tensor, scale: float) -> Tensor:
    """The term in units of 1 / scale, int64; what is smaller is cut off."""
    return term.to(torch.float64).mul_(scale).to(torch.int64)


def from_fixed(total: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """The number that an int64 total stands for."""
    return total.to(torch.float64).div_(scale).to(dtype)


def peak_of(term: Tensor) -> float:
    """The largest magnitude; NaN where a number is undefined, 0 where there is none."""
    return float(term.abs().amax()) if term.numel() else 0.0


def sum_by(values_Z: Tensor, groups_Z: Tensor, num_groups: int) -> Tensor:
    """The sum of each group's values, the same bits in every order of the values, on every kind of device.

    values_Z: float [Z]. groups_Z: int64 [Z], each in [0, num_groups). Returns [num_groups] of the values' type; cut off and
    undefined as in `exact_sum`.
    """
    peak = peak_of(values_Z)
    if not math.isfinite(peak):
        return values_Z.new_full((num_groups,), math.nan)
    scale = scale_for(peak, len(values_Z))
    total = torch.zeros(num_groups, dtype=torch.int64, device=values_Z.device)
    return from_fixed(total.index_add_(0, groups_Z, to_fixed(values_Z, scale)), scale, values_Z.dtype)


def exact_sum(terms: Sequence[Tensor]) -> Tensor:
    """The sum of equally shaped float tensors, the same bits in every order of the terms.

    From each term is cut what lies below the largest magnitude of all, times 2^-60, times the number of terms; at the end the
    sum is rounded to float64 and to the terms' type. Where a term is infinite or undefined the result is undefined throughout,
    so that nobody mistakes it for a number.
    """
    peaks = [peak_of(term) for term in terms]
    if not all(math.isfinite(peak) for peak in peaks):
        return torch.full_like(terms[0], math.nan)
    scale = scale_for(max(peaks, default=0.0), len(terms))
    total = to_fixed(terms[0], scale)
    for term in terms[1:]:
        total += to_fixed(term, scale)
    return from_fixed(total, scale, terms[0].dtype)
