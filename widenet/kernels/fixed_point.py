"""Sums that do not depend on the order of addition: in 64-bit fixed point, with a scale for every row.

Also powers whose bits depend neither on a number's place, nor on threads, nor on the processor's class.
torch's `pow` computes the last numbers of a thread's share in another way than the others, and NumPy's with
AVX-512 in another way than without. torch's `exp` and `log` do neither in portable bits.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from widenet.kernels.native import call, library_runs, triton_runs

Terms = Sequence[Tensor] | Tensor
"""Tensors of one shape, in a sequence or stacked in one tensor."""

BITS = 62
DOUBLE_BIAS = 1023
DOUBLE_MANTISSA_BITS = 52
LARGEST_EXPONENT = 1000


def peaks_of(term: Tensor) -> Tensor:
    """Return the largest magnitude of every row, float64; infinite if the row holds infinity or NaN.

    The rows of a term [E, H] lie along its last dimension, and the result is [E, 1]; in a term with fewer
    dimensions each number is a row.
    """
    if term.dim() >= 2 and not term.shape[-1]:
        return torch.zeros(*term.shape[:-1], 1, dtype=torch.float64, device=term.device)
    magnitude = term.abs() if term.dim() < 2 else term.abs().amax(dim=-1, keepdim=True)
    return magnitude.double().nan_to_num(nan=torch.inf, posinf=torch.inf)


def scales_for(peaks: Tensor, num_terms: int) -> Tensor:
    """Return powers of two, float64, that scale terms up to `peaks` so that `num_terms` add up to 63 bits."""
    known = torch.where(torch.isfinite(peaks), peaks, 0.0)
    headroom = max(num_terms - 1, 0).bit_length()
    exponent = (BITS - headroom - torch.frexp(known).exponent).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
    return ((exponent.long() + DOUBLE_BIAS) << DOUBLE_MANTISSA_BITS).view(torch.float64)


def to_fixed(term: Tensor, scales: Tensor) -> Tensor:
    """Return a term in units of 1 / scale, int64, truncated."""
    return (term.to(torch.float64) * scales).to(torch.int64)


def common_peaks(terms: Terms) -> Tensor:
    """Return the largest of the terms' `peaks_of`."""
    return torch.stack([peaks_of(term) for term in terms]).amax(dim=0)


def fixed_sum(terms: Terms, peaks: Tensor, num_terms: int) -> Tensor:
    """Return the sum of equally shaped terms as multiples of 1 / `scales_for(peaks, num_terms)`, int64."""
    scales = scales_for(peaks, num_terms)
    if terms[0].dim() != 2 or not library_runs(terms[0].device):
        total = to_fixed(terms[0], scales)
        for term in terms[1:]:
            total += to_fixed(term, scales)
        return total
    total, name = torch.zeros(terms[0].shape, dtype=torch.int64), f"add_fixed_{_name(terms[0])}"
    scales = scales.contiguous()
    for term in _alike(terms):
        call(name, total, term, scales, *total.shape)
    return total


def from_fixed(total: Tensor, scales: Tensor, peaks: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the numbers that an int64 total represents; NaN where the peak is infinite."""
    return total.to(torch.float64).div_(scales).masked_fill_(~torch.isfinite(peaks), torch.nan).to(dtype)


def sum_by(values_Z: Tensor, groups_Z: Tensor, num_groups: int, num_terms: int | None = None) -> Tensor:
    """Return the sum of each group's values: the same bits in every order of the values, on every device.

    Args:
        values_Z: Floats.
        groups_Z: int64, each in [0, num_groups).
        num_groups: Number of groups.
        num_terms: Number of values for which to scale, if the rest are zeros, or more; None: all.

    Returns:
        [num_groups] of the values' type. Each group is truncated, or NaN, as a row of `exact_sum`.
    """
    peaks = torch.zeros(num_groups, dtype=torch.float64, device=values_Z.device)
    peaks.scatter_reduce_(0, groups_Z, peaks_of(values_Z), "amax")
    scales = scales_for(peaks, len(values_Z) if num_terms is None else num_terms)
    total = torch.zeros(num_groups, dtype=torch.int64, device=values_Z.device)
    total.index_add_(0, groups_Z, to_fixed(values_Z, scales[groups_Z]))
    return from_fixed(total, scales, peaks, values_Z.dtype)


def exact_sum(terms: Terms) -> Tensor:
    """Return the sum of equally shaped float tensors: the same bits in every order of the terms.

    Each row (`peaks_of`) has its own scale. Each term is truncated to multiples of the row's largest
    magnitude in all terms, times 2^-60, times the number of terms. The sum is rounded to float64, then to the
    terms' type. A row with an infinity or NaN in any term becomes NaN.
    """
    first = terms[0]
    if triton_runs(first.device):
        from widenet.kernels.triton.fixed_point import exact_sum as launched

        return launched(terms if isinstance(terms, Tensor) else torch.stack([*terms]))
    if first.dim() <= 2 and library_runs(first.device):
        total = torch.empty(first.shape, dtype=first.dtype)
        shape = total.shape if total.dim() == 2 else (total.numel(), 1)
        call(f"exact_sum_{_name(total)}", _alike(terms), len(terms), total, *shape)
        return total
    peaks = common_peaks(terms)
    total = fixed_sum(terms, peaks, len(terms))
    return from_fixed(total, scales_for(peaks, len(terms)), peaks, first.dtype)


def _alike(terms: Terms) -> list[Tensor]:
    """Return the terms, contiguous; raise ValueError if they differ in shape or type."""
    if any(term.shape != terms[0].shape or term.dtype != terms[0].dtype for term in terms):
        raise ValueError("terms of a sum must have one shape and one type")
    return [term.contiguous() for term in terms]


def _name(tensor: Tensor) -> str:
    """Return "float32" or "float64", as the native library's functions are named."""
    return "float32" if tensor.dtype == torch.float32 else "float64"


def power(base: Tensor, exponent: float) -> Tensor:
    """Return base^exponent of numbers above 0, float64."""
    return base.log().mul_(exponent).exp_()


def powers(base: float, exponents: Tensor) -> Tensor:
    """Return base^exponents of a number from 0 on, float64."""
    if exponents.device.type == "cuda":  # which computes every number alike, in one launch
        return torch.pow(base, exponents)
    if base == 0:
        return (exponents == 0).to(torch.float64)
    return (exponents * math.log(base)).exp_()
