"""Copies the logits of a tile's sparse targets, for the closed form of the softmax."""

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.tile_part import targets_part

_ENTRIES = 128
"""Entries of a unit that are processed at the same time."""


@triton.jit
def _target_logits_kernel(starts, examples, products, biases, logits, num_units, ENTRIES: tl.constexpr):
    unit = tl.program_id(0)
    first, last = tl.load(starts + unit), tl.load(starts + unit + 1)
    bias = 0.0
    if biases is not None:
        bias = tl.load(biases + unit)
    for start in range(first, last, ENTRIES):
        entry, inside, _, _, z, _ = targets_part(
            start, last, examples, products, bias, unit, num_units, ENTRIES
        )
        tl.store(logits + entry, z, mask=inside)


def target_logits(
    starts: Tensor, examples_Z: Tensor, products_ET: Tensor, bias_T: Tensor | None, logits_Z: Tensor
) -> None:
    """Write the logits of a tile's targets into `logits_Z`; other arguments are as for `tile_targets`."""
    num_units = len(starts) - 1
    if not num_units:
        return
    _target_logits_kernel[(num_units,)](
        starts,  # [T + 1] int64
        examples_Z,  # [Z] int64
        products_ET,  # [E, T] float32
        bias_T,  # [T] float32, or None
        logits_Z,  # [Z] float32, out
        num_units,
        ENTRIES=_ENTRIES,
        num_warps=1,
        enable_fp_fusion=False,
    )
