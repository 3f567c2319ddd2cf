"""An output's gradient to the incoming vectors, for each of several shards."""

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.span import Span, add_product, described, precision_of

_EXAMPLES, _INNER, _UNITS = 128, 256, 32
"""Examples of a program, its most numbers of H (half as many in float32), and units of one product."""
_LEAST = 64
"""Fewest numbers of H of a program."""


@triton.jit
def _hidden_gradient_kernel(
    deltas,
    weights,
    sizes,
    totals,
    num_examples,
    num_inner,
    width,
    operand_room,
    operand_start,
    IS_FIRST: tl.constexpr,
    EXAMPLES: tl.constexpr,
    INNER: tl.constexpr,
    UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    shard = tl.program_id(2)
    example, begin = tl.program_id(1) * EXAMPLES, tl.program_id(0) * INNER
    examples, inner = example + tl.arange(0, EXAMPLES), begin + tl.arange(0, INNER)
    inside = (examples < num_examples)[:, None] & (inner < num_inner)[None, :]
    place = (shard.to(tl.int64) * num_examples + examples)[:, None] * num_inner + inner[None, :]
    if IS_FIRST:
        total = tl.zeros((EXAMPLES, INNER), tl.float32)
    else:
        total = tl.load(totals + place, mask=inside, other=0.0)
    for unit in range(0, tl.load(sizes + shard), UNITS):
        a = deltas.load([example, shard * width + unit])
        b = weights.load([shard * operand_room + operand_start + unit, begin])
        total = add_product(total, a, b, PRECISION)
    tl.store(totals + place, total, mask=inside)


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
    half = operand_RK.element_size() == 2
    inner = min(_INNER if half else _INNER // 2, triton.next_power_of_2(max(num_inner, _LEAST)))
    _hidden_gradient_kernel[triton.cdiv(num_inner, inner), triton.cdiv(num_examples, _EXAMPLES), num_shards](
        described(delta_EC, _EXAMPLES, _UNITS),  # [E, C] bfloat16 or float32
        described(operand_RK, _UNITS, inner),  # [R, K] of the same type
        span.sizes_S,  # [S] int32
        total_SEH,  # [S, E, H] float32, in and out
        num_examples,
        num_inner,
        span.width,
        *operand_rows,
        IS_FIRST=is_first,
        EXAMPLES=_EXAMPLES,
        INNER=inner,
        UNITS=_UNITS,
        PRECISION=precision_of(operand_RK),
        num_warps=8,
        num_stages=4 if half else 3,  # as many blocks as older GPUs have shared memory for
        enable_fp_fusion=False,
    )
