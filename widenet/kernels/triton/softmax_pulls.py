"""The targets in a tile of a softmax output: their pulls are taken from what `softmax_tile` gave."""

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.tile_part import targets_part

_ENTRIES = 128
"""Of a unit, at once."""


@triton.jit
def _kernel(starts, examples, pulls, products, biases, logarithms, couplings, deltas, bias_gradients, num_units, ENTRIES: tl.constexpr):
    unit = tl.program_id(0)
    first, last = tl.load(starts + unit), tl.load(starts + unit + 1)
    bias = 0.0
    if biases is not None:
        bias = tl.load(biases + unit)
    change = tl.zeros((ENTRIES,), tl.float32)
    for start in range(first, last, ENTRIES):
        entry, inside, example, place, z, stays = targets_part(start, last, examples, products, bias, unit, num_units, ENTRIES)
        pull = tl.load(pulls + entry, mask=inside, other=0.0)
        logarithm = tl.load(logarithms + example, mask=inside, other=0.0)
        coupling = tl.load(couplings + example, mask=inside, other=0.0)
        delta = tl.exp(z - logarithm) * coupling - pull
        tl.store(deltas + place, delta.to(deltas.dtype.element_ty), mask=stays)
        change += tl.where(stays, pull, 0.0)
    tl.store(bias_gradients + unit, tl.load(bias_gradients + unit) - tl.sum(change, axis=0))


def softmax_pulls(
    starts: Tensor,
    examples_Z: Tensor,
    pull_Z: Tensor,
    products_ET: Tensor,
    bias_T: Tensor | None,
    log_sum_E: Tensor,
    coupling_E: Tensor,
    delta_ET: Tensor,
    bias_gradient_T: Tensor,
) -> None:
    """Take the targets' pulls from the results of `softmax_tile`, in place. starts, examples_Z: as of `tile_targets`."""
    num_units = len(starts) - 1
    if not num_units:
        return
    _kernel[(num_units,)](
        starts,  # [T + 1] int64
        examples_Z,  # [Z] int64
        pull_Z,  # [Z] float32
        products_ET,  # [E, T] float32 or bfloat16
        bias_T,  # [T] float32, or None
        log_sum_E,  # [E] float32
        coupling_E,  # [E] float32
        delta_ET,  # [E, T] of the products' type, in and out
        bias_gradient_T,  # [T] float32, in and out
        num_units,
        ENTRIES=_ENTRIES,
        num_warps=1,
        enable_fp_fusion=False,
    )
