"""The gradient to an output's weight and the optimizer's step, in one pass: each program owns some units."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton.advance import advance_at
from widenet.kernels.triton.span import COLUMNS, Span, add_product, block_of, described, precision_of, quarter
from widenet.kernels.triton.tile_step import four, six, two

_INNER, _EXAMPLES = 128, 64
"""Numbers of H of a program, and examples that it multiplies at once."""


@triton.jit
def _weight_step_kernel(
    deltas,
    direct,
    sizes,
    weight,
    first,
    second,
    penalties,
    constants,
    num_examples,
    num_inner,
    weight_stride,
    width,
    room,
    start,
    KIND: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    EXAMPLES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(1)
    shard, units, exist = block_of(sizes, width, block, UNITS)
    begin = tl.program_id(0) * INNER
    gradient = tl.zeros((UNITS, INNER), tl.float32)
    for example in range(0, num_examples, EXAMPLES):
        a, b = deltas.load([example, block * UNITS]), direct.load([example, begin])
        gradient = add_product(gradient, tl.trans(a), b, PRECISION)
    rows = (shard * room + start).to(tl.int64) + units
    for number in tl.static_range(4):
        some = begin + number * (INNER // 4) + tl.arange(0, INNER // 4)
        place = rows[:, None] * weight_stride + some[None, :]
        inside = exist[:, None] & (some < num_inner)[None, :]
        own = quarter(gradient, number)
        advance_at(weight, first, second, place, inside, own, 1.0, penalties, constants, KIND)


def weight_step(
    kind: str,
    weight_RH: Tensor,
    states: Sequence[Tensor],
    penalties: Penalties,
    constants: Sequence[float],
    delta_EC: Tensor,
    direct_EK: Tensor,
    span: Span,
) -> None:
    """Make a step of a tile's weights, in place; the gradient delta.T @ direct stays in registers.

    The order of addition is that of the examples.

    Args:
        kind: Kind of the optimizer.
        weight_RH: The weight of all shards.
        states: The optimizer's states, float32 [R, H], laid out as the weight.
        penalties: See `Steps`.
        constants: See `Steps`.
        delta_EC: Gradients to the logits, bfloat16 or float32.
        direct_EK: The incoming vectors, of the same type; H is at most K.
        span: The tile.
    """
    num_inner = weight_RH.shape[1]
    if not span.columns or not num_inner:
        return
    first, second = two(states)
    examples = _EXAMPLES if direct_EK.element_size() == 2 else _EXAMPLES // 2
    _weight_step_kernel[triton.cdiv(num_inner, _INNER), span.columns // COLUMNS](
        described(delta_EC, examples, COLUMNS),  # [E, C] bfloat16 or float32
        described(direct_EK, examples, _INNER),  # [E, K] of the same type
        span.sizes_S,  # [S] int32
        weight_RH,  # [R, H] float32, in and out
        first,  # [R, H] float32, in and out, or None
        second,  # [R, H] float32, in and out, or None
        four(penalties),
        six(constants),
        len(direct_EK),
        num_inner,
        weight_RH.stride(0),
        span.width,
        span.room,
        span.start,
        KIND=kind,
        UNITS=COLUMNS,
        INNER=_INNER,
        EXAMPLES=examples,
        PRECISION=precision_of(direct_EK),
        num_warps=8,
        num_stages=3,
        maxnreg=128,  # so that one program's step of memory hides behind another's products
        enable_fp_fusion=False,
    )
