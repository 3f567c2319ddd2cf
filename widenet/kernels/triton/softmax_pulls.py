"""Subtracts the targets' pulls from the result of `softmax_tile`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.tile_part import targets_part

_ENTRIES = 128
"""Entries of a unit that are processed at the same time."""


@triton.jit
def _softmax_pulls_kernel(
    starts,
    examples,
    pulls,
    values,
    products,
    biases,
    logarithms,
    couplings,
    deltas,
    bias_gradients,
    losses,
    num_units,
    ENTRIES: tl.constexpr,
):
    unit = tl.program_id(0)
    first, last = tl.load(starts + unit), tl.load(starts + unit + 1)
    bias = 0.0
    if biases is not None:
        bias = tl.load(biases + unit)
    change = tl.zeros((ENTRIES,), tl.float32)
    loss = tl.zeros((ENTRIES,), tl.float64)
    for start in range(first, last, ENTRIES):
        entry, inside, example, place, z, stays = targets_part(
            start, last, examples, products, bias, unit, num_units, ENTRIES
        )
        pull = tl.load(pulls + entry, mask=inside, other=0.0)
        logarithm = tl.load(logarithms + example, mask=inside, other=0.0)
        coupling = tl.load(couplings + example, mask=inside, other=0.0)
        delta = tl.exp(z - logarithm) * coupling - pull
        tl.store(deltas + place, delta.to(deltas.dtype.element_ty), mask=stays)
        change += tl.where(stays, pull, 0.0)
        loss += tl.load(values + entry, mask=inside, other=0.0).to(tl.float64)
    tl.store(bias_gradients + unit, tl.load(bias_gradients + unit) - tl.sum(change, axis=0))
    tl.store(losses + unit, tl.sum(loss, axis=0))


def softmax_pulls(
    starts: Tensor,
    examples_Z: Tensor,
    pull_Z: Tensor,
    value_Z: Tensor,
    products_ET: Tensor,
    bias_T: Tensor | None,
    log_sum_E: Tensor,
    coupling_E: Tensor,
    delta_ET: Tensor,
    bias_gradient_T: Tensor,
) -> Tensor:
    """Subtract the targets' pulls from the results of `softmax_tile`; return the targets' loss, float64 [].

    value_Z is the loss of each target; starts and examples_Z are as for `tile_targets`.
    """
    num_units = len(starts) - 1
    losses_T = torch.empty(num_units, dtype=torch.float64, device=products_ET.device)
    if num_units:
        _softmax_pulls_kernel[(num_units,)](
            starts,  # [T + 1] int64
            examples_Z,  # [Z] int64
            pull_Z,  # [Z] float32
            value_Z,  # [Z] float32
            products_ET,  # [E, T] float32
            bias_T,  # [T] float32, or None
            log_sum_E,  # [E] float32
            coupling_E,  # [E] float32
            delta_ET,  # [E, T] of the products' type, in and out
            bias_gradient_T,  # [T] float32, in and out
            losses_T,  # [T] float64, out
            num_units,
            ENTRIES=_ENTRIES,
            num_warps=1,
            enable_fp_fusion=False,
        )
    return losses_T.sum()
