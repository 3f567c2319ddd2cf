"""Sums of weight rows: each program adds the rows of one example, in storage order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.sparse import SparseBatch

UNROLLED = 8
"""Rows that are loaded at the same time; they are added one after the other."""


@triton.jit
def sum_of_rows(first, last, indices, values, rows, row_length, columns, UNROLLED: tl.constexpr):
    """Return the sum of the rows indices[first : last], times their values if any, in this order."""
    total = tl.zeros(columns.shape, tl.float32)
    for start in range(first, last, UNROLLED):
        for ahead in tl.static_range(UNROLLED):
            entry = start + ahead
            is_entry = entry < last
            length = tl.where(is_entry, row_length, 0)
            row = tl.load(indices + entry, mask=is_entry, other=0).to(tl.int64)
            term = tl.load(rows + row * row_length + columns, mask=columns < length, other=0.0).to(tl.float32)
            if values is not None:
                term = term * tl.load(values + entry, mask=is_entry, other=0.0)
            total += term
    return total


@triton.jit
def _gather_sum_kernel(
    indptr, indices, values, weight, sums, num_columns, BLOCK: tl.constexpr, UNROLLED: tl.constexpr
):
    example = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, last = tl.load(indptr + example), tl.load(indptr + example + 1)
    total = sum_of_rows(first, last, indices, values, weight, num_columns, columns, UNROLLED)
    tl.store(sums + example * num_columns + columns, total, mask=columns < num_columns)


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    num_columns = weight_FH.shape[1]
    sums_EH = torch.empty(batch.num_examples, num_columns, dtype=torch.float32, device=weight_FH.device)
    if not sums_EH.numel():
        return sums_EH
    block, warps = columns_at_once(num_columns)
    _gather_sum_kernel[batch.num_examples, triton.cdiv(num_columns, block)](
        batch.indptr,  # [E + 1] int64
        batch.indices.contiguous(),  # [Z] int32 or int64
        batch.values,  # [Z] float32, or None
        weight_FH.contiguous(),  # [F, H] float32
        sums_EH,  # [E, H] float32, out
        num_columns,
        BLOCK=block,
        UNROLLED=UNROLLED,
        num_warps=warps,
        enable_fp_fusion=False,
    )
    return sums_EH


def columns_at_once(num_columns: int) -> tuple[int, int]:
    """Return the columns for each program, and its warps: 4 numbers (16 bytes) per thread if possible."""
    block = min(triton.next_power_of_2(num_columns), 1024)
    return block, max(block // 128, 1)
