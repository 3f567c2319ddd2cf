"""Computes the gradient of each touched row and makes the optimizer's step, one program per row."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton.advance import advance_at
from widenet.kernels.triton.gather_sum import columns_at_once, sum_of_rows
from widenet.kernels.triton.tile_step import four, six, two

_UNROLLED = 8


@triton.jit(do_not_specialize=["number"])
def _row_step_kernel(
    weight,
    first_state,
    second_state,
    gradient,
    features,
    indptr,
    examples,
    values,
    fades,
    moved,
    number,
    penalties,
    constants,
    num_columns,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    UNROLLED: tl.constexpr,
):
    touched = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(features + touched)
    is_column = columns < num_columns
    place = row * num_columns + columns
    first, last = tl.load(indptr + touched), tl.load(indptr + touched + 1)
    g = sum_of_rows(first, last, examples, values, gradient, num_columns, columns, UNROLLED)
    fade = tl.load(fades + touched)
    advance_at(weight, first_state, second_state, place, is_column, g, fade, penalties, constants, KIND)
    if moved is not None:
        tl.store(moved + row, number, mask=tl.program_id(1) == 0)


def row_step(
    kind: str,
    weight_RH: Tensor,
    touched: RowGradient,
    states: Sequence[Tensor],
    fade_U: Tensor,
    moved: Tensor | None,
    number: int,
    penalties: Penalties,
    constants: Sequence[float],
) -> None:
    """Make a step of the touched rows of a weight, in place.

    The order of addition is by example, then storage order.

    Args:
        kind: Kind of the optimizer.
        weight_RH: The weight.
        touched: The rows and their gradient.
        states: The optimizer's states, float32 [R, H].
        fade_U: Factors on the states before the step, float32.
        moved: The step that moved each row last, int32 [R], out; or None.
        number: The step's number.
        penalties: See `Steps`.
        constants: See `Steps`.
    """
    num_columns = weight_RH.shape[1]
    if not len(touched) or not num_columns:
        return
    first, second = two(states)
    block, warps = columns_at_once(num_columns)
    _row_step_kernel[len(touched), triton.cdiv(num_columns, block)](
        weight_RH,  # [R, H] float32, in and out
        first,  # [R, H] float32, in and out, or None
        second,  # [R, H] float32, in and out, or None
        touched.gradient_EH.contiguous(),  # [E, H] float32
        touched.features_U,  # [U] int64, no two the same
        touched.indptr,  # [U + 1] int64
        touched.examples_Z,  # [Z] int64
        touched.values_Z,  # [Z] float32, or None
        fade_U,  # [U] float32
        moved,  # [R] int32, out, or None
        number,
        four(penalties),
        six(constants),
        num_columns,
        KIND=kind,
        BLOCK=block,
        UNROLLED=_UNROLLED,
        num_warps=warps,
        enable_fp_fusion=False,
    )
