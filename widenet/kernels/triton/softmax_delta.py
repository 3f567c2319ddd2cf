"""Turns the shares of a softmax's tile into the gradient to its logits, without the targets' pulls."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.span import COLUMNS, Span

_EXAMPLES = 64


@triton.jit
def _softmax_delta_kernel(
    shares,
    peaks,
    logarithms,
    couplings,
    column_sums,
    num_examples,
    width,
    columns,
    num_blocks,
    first_block,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
):
    block = tl.program_id(0)
    shard = block * UNITS // width
    examples = tl.program_id(1) * EXAMPLES + tl.arange(0, EXAMPLES)
    column = block * UNITS + tl.arange(0, UNITS)
    inside = examples < num_examples
    place = (shard * num_blocks + first_block + block - shard * (width // UNITS)).to(tl.int64) * num_examples
    peak = tl.load(peaks + place + examples, mask=inside, other=0.0)
    logarithm = tl.load(logarithms + examples, mask=inside, other=0.0)
    factor = tl.exp(peak - logarithm) * tl.load(couplings + examples, mask=inside, other=0.0)
    cell = examples.to(tl.int64)[:, None] * columns + column[None, :]
    share = tl.load(shares + cell, mask=inside[:, None], other=0.0)
    delta = share.to(tl.float32) * factor[:, None]
    tl.store(shares + cell, delta.to(shares.dtype.element_ty), mask=inside[:, None])
    tl.store(column_sums + tl.program_id(1).to(tl.int64) * columns + column, tl.sum(delta, axis=0))


def softmax_delta(
    shares_EC: Tensor, peaks_SBE: Tensor, first_block: int, log_sum_E: Tensor, coupling_E: Tensor, span: Span
) -> Tensor:
    """Replace shares by exp(z - log_sum) * coupling; return its sums over parts of examples, float32 [P, C].

    Args:
        shares_EC: exp(z - peak) of the tile, bfloat16 or float32, in and out.
        peaks_SBE: The peaks, float32.
        first_block: First B of the tile.
        log_sum_E: Logarithm of the softmax's denominator, float32.
        coupling_E: float32.
        span: The tile.
    """
    num_examples, columns = shares_EC.shape
    grid = columns // COLUMNS, triton.cdiv(num_examples, _EXAMPLES)
    sums_PC = torch.empty(grid[1], columns, device=shares_EC.device)
    if grid[0] * grid[1]:
        _softmax_delta_kernel[grid](
            shares_EC,  # [E, C] bfloat16 or float32, in and out
            peaks_SBE,  # [S, B, E] float32
            log_sum_E,  # [E] float32
            coupling_E,  # [E] float32
            sums_PC,  # [P, C] float32, out
            num_examples,
            span.width,
            columns,
            peaks_SBE.shape[1],
            first_block,
            EXAMPLES=_EXAMPLES,
            UNITS=COLUMNS,
            num_warps=8,
            enable_fp_fusion=False,
        )
    return sums_PC
