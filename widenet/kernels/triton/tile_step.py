"""Makes an optimizer's step of a whole weight, or of a tile, in one pass."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton.advance import advance_at

_BLOCK = 1024


@triton.jit
def _tile_step_kernel(
    weight, gradient, first, second, penalties, constants, num, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num
    g = tl.load(gradient + place, mask=inside, other=0.0)
    advance_at(weight, first, second, place, inside, g, 1.0, penalties, constants, KIND)


def tile_step(
    kind: str,
    weight: Tensor,
    gradient: Tensor,
    states: Sequence[Tensor],
    penalties: Penalties,
    constants: Sequence[float],
) -> None:
    """Make a step of a contiguous weight, in place; gradient and states have its shape. See `Steps`."""
    if not weight.numel():
        return
    first, second = two(states)
    _tile_step_kernel[(triton.cdiv(weight.numel(), _BLOCK),)](
        weight,  # [N] float32, in and out
        gradient.contiguous(),  # [N] float32
        first,  # [N] float32, in and out, or None
        second,  # [N] float32, in and out, or None
        four(penalties),
        six(constants),
        weight.numel(),
        KIND=kind,
        BLOCK=_BLOCK,
        enable_fp_fusion=False,
    )


def two(states: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Return two states, None for missing ones."""
    return [*states, *[None] * (2 - len(states))]


def four(penalties: Penalties) -> tuple[float, float, float, float]:
    """Return the penalties as kernels take them: scale, l2, l1, keep."""
    return float(penalties.scale), float(penalties.l2), float(penalties.l1), float(penalties.keep)


def six(constants: Sequence[float]) -> tuple[float, ...]:
    """Return a formula's constants as kernels take them: as many as the longest formula has."""
    return (*map(float, constants), *[0.0] * (6 - len(constants)))
