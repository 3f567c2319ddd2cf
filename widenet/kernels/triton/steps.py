"""Optimizer steps on CUDA in one pass, with the arithmetic of `native/steps.cpp`."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.triton.gather_sum import UNROLLED, columns_at_once, sum_of_rows

_BLOCK = 1024


Numbers = tuple[tuple[float, ...], tuple[float, ...]]
"""See `OptimizerStep.numbers`."""


def step_tile(
    kind: str, numbers: Numbers, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]
) -> None:
    """See `OptimizerStep.tile`; all states have the weight's shape.

    The rows of several shards are contiguous in each.
    """
    if not weight.numel():
        return
    num_shards = 1 if weight.is_contiguous() else len(weight)
    num = weight.numel() // num_shards
    _tile_kernel[triton.cdiv(num, _BLOCK), num_shards](
        weight,  # [S, N] float32, in and out
        *_two(states),  # each [S, N] float32, in and out, or None
        gradient.contiguous(),  # [S, N] float32
        *numbers,
        num,
        weight.stride(0),
        KIND=kind,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )


def step_rows(
    kind: str,
    numbers: Numbers,
    weight_RH: Tensor,
    touched: RowGradient,
    states: Sequence[Tensor],
    fade_U: Tensor | None,
) -> None:
    """See `OptimizerStep.rows`; all states have the weight's shape."""
    num_columns = weight_RH.shape[1]
    if not len(touched) or not num_columns:
        return
    block, warps = columns_at_once(num_columns)
    _rows_kernel[len(touched), triton.cdiv(num_columns, block)](
        weight_RH,  # [R, H] float32, in and out
        *_two(states),  # each [R, H] float32, in and out, or None
        touched.gradient_EH.contiguous(),  # [E, H] float32
        touched.features_U,  # [U] int64, no two the same
        touched.indptr,  # [U + 1] int64
        touched.examples_Z,  # [Z] int64
        touched.values_Z,  # [Z] float32, or None
        fade_U,  # [U] float32, or None
        *numbers,
        num_columns,
        KIND=kind,
        BLOCK=block,
        UNROLLED=UNROLLED,
        num_warps=warps,
        enable_fp_fusion=False,
    )


def _two(states: Sequence[Tensor]) -> Sequence[Tensor | None]:
    return [*states, *[None] * (2 - len(states))]


@triton.jit
def _tile_kernel(
    weight,
    first,
    second,
    gradient,
    penalties,
    constants,
    num,
    stride,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside, shard = number < num, tl.program_id(1).to(tl.int64)
    g = tl.load(gradient + shard * num + number, mask=inside, other=0.0)
    _advance(weight, first, second, shard * stride + number, inside, g, 1.0, penalties, constants, KIND)


@triton.jit
def _rows_kernel(
    weight,
    first_state,
    second_state,
    gradient,
    features,
    indptr,
    examples,
    values,
    fades,
    penalties,
    constants,
    num_columns,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLLED: tl.constexpr,
):
    touched = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < num_columns
    place = tl.load(features + touched) * num_columns + columns
    first, last = tl.load(indptr + touched), tl.load(indptr + touched + 1)
    g = sum_of_rows(first, last, examples, values, gradient, num_columns, columns, UNROLLED)
    fade = 1.0
    if fades is not None:
        fade = tl.load(fades + touched)
    _advance(weight, first_state, second_state, place, is_column, g, fade, penalties, constants, KIND)


@triton.jit
def _advance(weight, first, second, place, inside, gradient, fade, penalties, constants, KIND: tl.constexpr):
    """Make a step of some numbers in memory.

    first, second: states, or None. fade: factor on the states before the step. penalties: scale, l2, l1 and
    keep of `OptimizerStep`.
    """
    scale, l2, l1, keep = penalties
    w = tl.load(weight + place, mask=inside, other=0.0)
    s, t = w, w
    if first is not None:
        s = fade * tl.load(first + place, mask=inside, other=0.0)
    if second is not None:
        t = fade * tl.load(second + place, mask=inside, other=0.0)
    sign = (w > 0.0).to(tl.float32) - (w < 0.0).to(tl.float32)
    g = scale * gradient + tl.where(l2 > 0.0, l2 * w, 0.0) + l1 * sign
    w, s, t = _formula(keep * w, g, s, t, constants, KIND)
    tl.store(weight + place, w, mask=inside)
    if first is not None:
        tl.store(first + place, s, mask=inside)
    if second is not None:
        tl.store(second + place, t, mask=inside)


@triton.jit
def _formula(w, g, s, t, c, KIND: tl.constexpr):
    """Return weight and states after the step of a kind; see `kernels.steps.FORMULAS`."""
    if KIND == "sgd":
        return w - c[0] * g, s, t
    elif KIND == "momentum" or KIND == "nesterov":
        velocity = c[0] * s + g
        ahead = tl.where(c[1] > 0.0, c[1] * velocity + g, velocity)
        return w - c[2] * ahead, velocity, t
    elif KIND == "adagrad" or KIND == "rmsprop":
        square = c[0] * s + c[1] * (g * g)
        return w - c[3] * tl.div_rn(g, tl.sqrt_rn(tl.where(square < c[4], c[4], square)) + c[2]), square, t
    elif KIND == "adadelta":
        square = c[0] * s + c[1] * (g * g)
        step_held, held = tl.where(t < c[4], c[4], t), tl.where(square < c[4], c[4], square)
        change = tl.div_rn(tl.sqrt_rn(step_held + c[2]), tl.sqrt_rn(held + c[2])) * g
        return w - c[3] * change, square, c[0] * t + c[1] * (change * change)
    else:
        tl.static_assert(KIND == "adam" or KIND == "adamw")
        mean = s + c[0] * (g - s)
        square = c[1] * t + c[2] * (g * g)
        return w - c[3] * tl.div_rn(mean, tl.sqrt_rn(square) * c[4] + c[5]), mean, square
