"""Exact sums of a process: all terms in one launch. Torch computes the integers that processes exchange."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 1024
"""Numbers of a term that a program has at hand."""


@triton.jit
def _places(num_rows, row_length, start, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the rows of a program, and places in a term with which of them there are."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = start + tl.arange(0, COLUMNS)
    inside = (rows < num_rows)[:, None] & (columns < row_length)[None, :]
    return rows, rows[:, None] * row_length + columns[None, :], inside


@triton.jit
def _peaks_of(terms, num_terms, num_rows, row_length, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the largest magnitude of every row, float64; infinite if the row holds infinity or NaN."""
    peaks = tl.zeros([ROWS], tl.float64)
    for start in range(0, row_length, COLUMNS):
        _, places, inside = _places(num_rows, row_length, start, ROWS, COLUMNS)
        own = terms + places
        for _ in range(num_terms):
            size = tl.abs(tl.load(own, mask=inside, other=0.0).to(tl.float64))
            peaks = tl.maximum(peaks, tl.max(tl.where(size == size, size, float("inf")), axis=1))
            own += num_rows * row_length
    return peaks


@triton.jit
def _exponent(peaks, headroom):
    """Return the exponent of the scale for each peak; see `fixed_point.scales_for`."""
    known = tl.where(peaks < float("inf"), peaks, 0.0)
    own = tl.where(known > 0.0, ((known.to(tl.int64, bitcast=True) >> 52) & 2047) - 1022, 0)
    return tl.minimum(tl.maximum(62 - headroom - own, -1000), 1000)


@triton.jit
def _power_of_two(exponent):
    return ((exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _fixed_at(terms, num_terms, size, places, inside, peaks, exponent):
    """Return the sum of some numbers of all terms in units of 2^-exponent, int64; 0 where a peak is infinite.

    size: numbers of a term.
    """
    scale = _power_of_two(exponent)[:, None]
    inside = inside & (peaks < float("inf"))[:, None]
    total = tl.zeros(places.shape, tl.int64)
    own = terms + places
    for _ in range(num_terms):
        total += (tl.load(own, mask=inside, other=0.0).to(tl.float64) * scale).to(tl.int64)
        own += size
    return total


@triton.jit
def _exact_kernel(
    terms, sums, num_terms, headroom, num_rows, row_length, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    peaks = _peaks_of(terms, num_terms, num_rows, row_length, ROWS, COLUMNS)
    exponent = _exponent(peaks, headroom)
    for start in range(0, row_length, COLUMNS):
        _, places, inside = _places(num_rows, row_length, start, ROWS, COLUMNS)
        total = _fixed_at(terms, num_terms, num_rows * row_length, places, inside, peaks, exponent)
        own = total.to(tl.float64) * _power_of_two(-exponent)[:, None]
        own = tl.where((peaks < float("inf"))[:, None], own, float("nan"))
        tl.store(sums + places, own.to(sums.dtype.element_ty), mask=inside)


def exact_sum(terms: Tensor) -> Tensor:
    """See `fixed_point.exact_sum`; the terms are stacked."""
    sums = torch.empty_like(terms[0], memory_format=torch.contiguous_format)
    if not sums.numel():
        return sums
    columns = sums.shape[-1] if sums.dim() > 1 else 1
    rows, at_once = sums.numel() // columns, min(triton.next_power_of_2(columns), _NUMBERS)
    own_rows = min(triton.next_power_of_2(rows), _NUMBERS // at_once)
    _exact_kernel[(triton.cdiv(rows, own_rows),)](
        terms.contiguous(),  # [K, R, C] float32 or float64
        sums,  # [R, C], out
        len(terms),
        (len(terms) - 1).bit_length(),
        rows,
        columns,
        ROWS=own_rows,
        COLUMNS=at_once,
        enable_fp_fusion=False,
    )
    return sums
