"""Replaces the losses and slopes of the targets in the result of `tile_others`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.formulas import of_others, of_targets
from widenet.kernels.triton.tile_others import UnitFormula
from widenet.kernels.triton.tile_part import targets_part

_ENTRIES = 128
"""Entries of a unit that are processed at the same time."""


@triton.jit
def _tile_targets_kernel(
    starts,
    examples,
    values,
    products,
    biases,
    target_weights,
    other_weights,
    deltas,
    bias_gradients,
    losses,
    num_units,
    numbers,
    ACTIVATION: tl.constexpr,
    LOSS: tl.constexpr,
    BY_LOGIT: tl.constexpr,
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
        t = tl.full((ENTRIES,), 1.0, tl.float32)
        if values is not None:
            t = tl.load(values + entry, mask=inside, other=0.0)
        other_weight = tl.load(other_weights + example, mask=inside, other=0.0)
        weight = tl.where(t > 0.0, tl.load(target_weights + example, mask=inside, other=0.0), other_weight)
        other, other_slope = of_others(z, numbers, ACTIVATION, LOSS, BY_LOGIT)
        value, slope = of_targets(z, t, numbers, ACTIVATION, LOSS, BY_LOGIT)
        tl.store(deltas + place, (slope * weight).to(deltas.dtype.element_ty), mask=stays)
        change += tl.where(stays, slope * weight - other_slope * other_weight, 0.0)
        after = value.to(tl.float64) * weight.to(tl.float64)
        before = other.to(tl.float64) * other_weight.to(tl.float64)
        loss += tl.where(inside, after - before, 0.0)
    tl.store(bias_gradients + unit, tl.load(bias_gradients + unit) + tl.sum(change, axis=0))
    tl.store(losses + unit, tl.sum(loss, axis=0))


def tile_targets(
    starts: Tensor,
    examples_Z: Tensor,
    values_Z: Tensor | None,
    products_ET: Tensor,
    bias_T: Tensor | None,
    target_weight_E: Tensor,
    other_weight_E: Tensor,
    delta_ET: Tensor,
    bias_gradient_T: Tensor,
    formula: UnitFormula,
) -> Tensor:
    """Correct the results of `tile_others` for the targets; return the change of its loss, float64 [].

    Args:
        starts: int64 [T + 1]; unit t has the entries starts[t] to starts[t + 1] - 1, ascending by example.
        examples_Z: int64.
        values_Z: float32; None: ones.
        products_ET: Logits without the biases, float32.
        bias_T: float32, or None.
        target_weight_E: Weights of targets above zero, float32.
        other_weight_E: Weights of all other units, float32.
        delta_ET: Slopes, in and out.
        bias_gradient_T: Sums of the slopes over examples, float32, in and out.
        formula: Activation and loss.
    """
    num_units = len(starts) - 1
    losses_T = torch.empty(num_units, dtype=torch.float64, device=products_ET.device)
    if num_units:
        _tile_targets_kernel[(num_units,)](
            starts,  # [T + 1] int64
            examples_Z,  # [Z] int64
            values_Z,  # [Z] float32, or None: ones
            products_ET,  # [E, T] float32
            bias_T,  # [T] float32, or None
            target_weight_E,  # [E] float32
            other_weight_E,  # [E] float32
            delta_ET,  # [E, T] of the products' type, in and out
            bias_gradient_T,  # [T] float32, in and out
            losses_T,  # [T] float64, out
            num_units,
            formula.numbers,
            ACTIVATION=formula.activation,
            LOSS=formula.loss,
            BY_LOGIT=formula.by_logit,
            ENTRIES=_ENTRIES,
            num_warps=1,
            enable_fp_fusion=False,
        )
    return losses_T.sum()
