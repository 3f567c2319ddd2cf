"""Optimizer steps on CUDA in one pass, the counterpart of `kernels.passes.TileStep` on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.passes import Penalties
from widenet.kernels.triton.advance import advance_at
from widenet.kernels.triton.gather_sum import columns_at_once, sum_of_rows

_BLOCK = 1024
_UNROLLED = 8


@dataclass(frozen=True)
class Steps:
    """The steps of one optimizer.

    Attributes:
        kind: Its kind.
        penalties: Its penalties.
        constants: Constants of its formula.
    """

    kind: str
    penalties: Penalties
    constants: Sequence[float]

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """See `TileStep.tile`."""
        if not weight.numel():
            return
        _tile_step_kernel[(triton.cdiv(weight.numel(), _BLOCK),)](
            weight,  # [N] float32, in and out
            gradient.contiguous(),  # [N] float32
            *_two(states),  # each [N] float32, in and out, or None
            *self._numbers(),
            weight.numel(),
            KIND=self.kind,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )

    def rows(self, weight_RH: Tensor, touched: RowGradient, states: Sequence[Tensor], fade_U: Tensor) -> None:
        """See `TileStep.rows`; the order of addition is by example, then storage order."""
        num_columns = weight_RH.shape[1]
        if not len(touched) or not num_columns:
            return
        block, warps = columns_at_once(num_columns)
        _row_step_kernel[len(touched), triton.cdiv(num_columns, block)](
            weight_RH,  # [R, H] float32, in and out
            *_two(states),  # each [R, H] float32, in and out, or None
            touched.gradient_EH.contiguous(),  # [E, H] float32
            touched.features_U,  # [U] int64, no two the same
            touched.indptr,  # [U + 1] int64
            touched.examples_Z,  # [Z] int64
            touched.values_Z,  # [Z] float32, or None
            fade_U,  # [U] float32
            *self._numbers(),
            num_columns,
            KIND=self.kind,
            BLOCK=block,
            UNROLLED=_UNROLLED,
            num_warps=warps,
            enable_fp_fusion=False,
        )

    def _numbers(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the four penalties, and six constants."""
        penalties = self.penalties.scale, self.penalties.l2, self.penalties.l1, self.penalties.keep
        return tuple(map(float, penalties)), (*self.constants, *[0.0] * (6 - len(self.constants)))


def _two(states: Sequence[Tensor]) -> Sequence[Tensor | None]:
    return [*states, *[None] * (2 - len(states))]


@triton.jit
def _tile_step_kernel(
    weight, gradient, first, second, penalties, constants, num, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num
    g = tl.load(gradient + place, mask=inside, other=0.0)
    advance_at(weight, first, second, place, inside, g, 1.0, penalties, constants, KIND)


@triton.jit
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
    fade = tl.load(fades + touched)
    advance_at(weight, first_state, second_state, place, is_column, g, fade, penalties, constants, KIND)
