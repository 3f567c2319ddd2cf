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
    kind: str,
    numbers: Numbers,
    weight: Tensor,
    gradient: Tensor,
    states: Sequence[Tensor],
    sums: Tensor | None = None,
) -> None:
    """See `OptimizerStep.tile`; all states have the weight's shape and strides.

    The rows of several shards are contiguous in each. With `sums`, the gradient has columns after those of
    the weight, of which these take the first.
    """
    if not weight.numel():
        return
    is_whole = sums is None and weight.is_contiguous() and gradient.is_contiguous()
    num_shards = 1 if is_whole else len(weight)
    rows = 1 if is_whole or weight.dim() < 3 else weight.shape[1]
    num = weight.numel() // num_shards // rows
    block, warps = columns_at_once(num)
    _tile_kernel[rows * triton.cdiv(num, block), num_shards](
        weight,  # [S, R, N] float32, in and out
        *_two(states),  # each [S, R, N] float32, in and out, or None
        gradient,  # [S, R, N or more] float32
        sums,  # [S, R] float32, out; or None
        *numbers,
        num,
        triton.cdiv(num, block),
        weight.stride(0),
        gradient.stride(0),
        gradient.stride(-2) if rows > 1 else 0,
        0 if sums is None else sums.stride(0),
        KIND=kind,
        BLOCK=block,
        num_warps=warps,
        enable_fp_fusion=False,
    )


def step_all(
    kind: str,
    numbers: Sequence[Numbers],
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    states: Sequence[Sequence[Tensor]],
) -> None:
    """Make the steps of several weights of the trunk in one launch; see `OptimizerStep.tile`."""
    columns = [*zip(*map(_two, states), strict=True)]
    most = max(weight.numel() for weight in weights)
    _all_kernel[triton.cdiv(most, _BLOCK), len(weights)](
        tuple(weights),  # each [N] float32, in and out
        *columns,  # the states of each [N] float32, in and out, or None
        tuple(gradient.contiguous() for gradient in gradients),  # each [N] float32
        tuple(penalties for penalties, _ in numbers),
        numbers[0][1],
        tuple(weight.numel() for weight in weights),
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
    since: Tensor | None,
    number: int,
    fading: float,
) -> None:
    """See `OptimizerStep.rows` and `Idle`; all states have the weight's shape."""
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
        since,  # [R] int32, or None
        number,
        *numbers,
        num_columns,
        FADING=fading,
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
    sums,
    penalties,
    constants,
    num,
    num_blocks,
    stride,
    gradient_stride,
    row_stride,
    sums_stride,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    shard, row = tl.program_id(1).to(tl.int64), (tl.program_id(0) // num_blocks).to(tl.int64)
    number = (tl.program_id(0) % num_blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    own = gradient + shard * gradient_stride + row * row_stride
    place = shard * stride + row * num + number
    g = tl.load(own + number, mask=number < num, other=0.0)
    _advance(weight, first, second, place, number < num, g, 1.0, penalties, constants, KIND)
    if sums is not None:
        tl.store(sums + shard * sums_stride + row, tl.load(own + num))


@triton.jit
def _all_kernel(
    weights,
    firsts,
    seconds,
    gradients,
    penalties,
    constants,
    sizes,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for place in tl.static_range(len(weights)):
        if tl.program_id(1) == place:
            inside = number < sizes[place]
            g = tl.load(gradients[place] + number, mask=inside, other=0.0)
            states = firsts[place], seconds[place]
            _advance(weights[place], *states, number, inside, g, 1.0, penalties[place], constants, KIND)


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
    since,
    step_number,
    penalties,
    constants,
    num_columns,
    FADING: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLLED: tl.constexpr,
):
    touched = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < num_columns
    feature = tl.load(features + touched)
    place = feature * num_columns + columns
    first, last = tl.load(indptr + touched), tl.load(indptr + touched + 1)
    g = sum_of_rows(first, last, examples, values, gradient, num_columns, columns, UNROLLED)
    fade = 1.0
    if since is not None:
        skipped = (step_number - 1 - tl.load(since + feature)).to(tl.float64)
        fading = tl.full([], FADING, tl.float64)
        fade = tl.where(skipped == 0.0, 1.0, tl.exp(skipped * tl.log(fading))).to(tl.float32)
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
