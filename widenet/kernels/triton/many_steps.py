"""Makes an optimizer's step of several whole weights in one launch."""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton.advance import advance_at
from widenet.kernels.triton.tile_step import four, six, two

_BLOCK = 1024
_AT_ONCE = 16
"""Weights in one launch, of which the kernel has an own piece of code for each."""


@triton.jit
def _many_steps_kernel(
    weights, gradients, firsts, seconds, sizes, penalties, constants, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for number in tl.static_range(len(weights)):
        if tl.program_id(1) == number:
            inside = place < sizes[number]
            g = tl.load(gradients[number] + place, mask=inside, other=0.0)
            advance_at(
                weights[number],
                firsts[number],
                seconds[number],
                place,
                inside,
                g,
                1.0,
                penalties,
                constants,
                KIND,
            )


def many_steps(
    kind: str,
    weights: Sequence[tuple[Tensor, Tensor, Sequence[Tensor]]],
    penalties: Penalties,
    constants: Sequence[float],
) -> None:
    """Make a step of contiguous weights, in place, given as weight, gradient and states. See `Steps`."""
    kept = [each for each in weights if each[0].numel()]
    for start in range(0, len(kept), _AT_ONCE):
        own = kept[start : start + _AT_ONCE]
        states = [two(each) for _, _, each in own]
        sizes = tuple(weight.numel() for weight, _, _ in own)
        _many_steps_kernel[triton.cdiv(max(sizes), _BLOCK), len(own)](
            tuple(weight for weight, _, _ in own),  # each [N] float32, in and out
            tuple(gradient.contiguous() for _, gradient, _ in own),  # each [N] float32
            tuple(first for first, _ in states),  # each [N] float32, in and out, or None
            tuple(second for _, second in states),  # each [N] float32, in and out, or None
            sizes,
            four(penalties),
            six(constants),
            KIND=kind,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
