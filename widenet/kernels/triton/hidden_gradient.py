"""An output's gradient to the incoming vectors, for each of several shards."""

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.span import Span, add_product, precision_of

_EXAMPLES, _INNER, _UNITS = 128, 128, 64
"""Examples and numbers of H of a program, and units that it multiplies at once; in float32 half of these."""


@triton.jit
def _hidden_gradient_kernel(
    deltas,
    weights,
    sizes,
    totals,
    num_examples,
    num_inner,
    weight_stride,
    width,
    columns,
    operand_room,
    operand_start,
    IS_FIRST: tl.constexpr,
    EXAMPLES: tl.constexpr,
    INNER: tl.constexpr,
    UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    shard = tl.program_id(2)
    examples = tl.program_id(1) * EXAMPLES + tl.arange(0, EXAMPLES)
    inner = tl.program_id(0) * INNER + tl.arange(0, INNER)
    is_example, is_inner = (examples < num_examples)[:, None], (inner < num_inner)[None, :]
    units = tl.arange(0, UNITS)
    num_units = tl.load(sizes + shard)
    left = deltas + examples.to(tl.int64)[:, None] * columns + shard * width + units[None, :]
    row = (shard * operand_room + operand_start).to(tl.int64)
    right = weights + (row + units)[:, None] * weight_stride + inner[None, :]
    place = (shard.to(tl.int64) * num_examples + examples)[:, None] * num_inner + inner[None, :]
    if IS_FIRST:
        total = tl.zeros((EXAMPLES, INNER), tl.float32)
    else:
        total = tl.load(totals + place, mask=is_example & is_inner, other=0.0)
    for first in range(0, num_units, UNITS):
        a = tl.load(left, mask=is_example, other=0.0)
        b = tl.load(right, mask=(first + units < num_units)[:, None] & is_inner, other=0.0)
        total = add_product(total, a, b, PRECISION)
        left += UNITS
        right += UNITS * weight_stride
    tl.store(totals + place, total, mask=is_example & is_inner)


def add_hidden_gradient(
    delta_EC: Tensor,
    operand_RK: Tensor,
    operand_rows: tuple[int, int],
    span: Span,
    total_SEH: Tensor,
    is_first: bool,
) -> None:
    """Add delta @ weight of a tile to each shard's gradient to the incoming vectors.

    The order of addition is that of the units within a tile, then that of the tiles.

    Args:
        delta_EC: Gradients to the logits, bfloat16 or float32; zero where no unit exists.
        operand_RK: As for `softmax_products`.
        operand_rows: As for `softmax_products`.
        span: The tile.
        total_SEH: The gradients, float32, in and out.
        is_first: Whether to overwrite them.
    """
    num_shards, num_examples, num_inner = total_SEH.shape
    if not total_SEH.numel():
        return
    _hidden_gradient_kernel[triton.cdiv(num_inner, _INNER), triton.cdiv(num_examples, _EXAMPLES), num_shards](
        delta_EC,  # [E, C] bfloat16 or float32
        operand_RK,  # [R, K] of the same type
        span.sizes_S,  # [S] int32
        total_SEH,  # [S, E, H] float32, in and out
        num_examples,
        num_inner,
        operand_RK.stride(0),
        span.width,
        span.columns,
        *operand_rows,
        IS_FIRST=is_first,
        EXAMPLES=_EXAMPLES,
        INNER=_INNER,
        UNITS=_UNITS if operand_RK.element_size() == 2 else _UNITS // 2,
        PRECISION=precision_of(operand_RK),
        num_warps=8,
        num_stages=3,
        enable_fp_fusion=False,
    )
