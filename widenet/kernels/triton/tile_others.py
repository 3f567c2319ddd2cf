"""Losses and slopes of all units of a tile, activated one by one, as if none were a target."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.formulas import of_others
from widenet.kernels.triton.tile_part import store_deltas, tile_part

_EXAMPLES, _UNITS = 64, 128
"""Size of a program's part of a tile."""


@dataclass(frozen=True)
class UnitFormula:
    """Activation and loss of a unit, by their names in a document, with their parameters.

    Attributes:
        by_logit: Whether the loss's slope is by the logit, not by the activation.
    """

    activation: str
    activation_numbers: tuple[float, float]
    loss: str
    loss_numbers: tuple[float, float, float, float, float]
    by_logit: bool

    @property
    def numbers(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The parameters as kernels take them."""
        return self.activation_numbers, self.loss_numbers


@triton.jit
def _tile_others_kernel(
    products,
    biases,
    weights,
    deltas,
    column_sums,
    losses,
    num_examples,
    num_units,
    numbers,
    ACTIVATION: tl.constexpr,
    LOSS: tl.constexpr,
    BY_LOGIT: tl.constexpr,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
):
    examples, units, place, inside, z = tile_part(products, biases, num_examples, num_units, EXAMPLES, UNITS)
    value, delta = of_others(z, numbers, ACTIVATION, LOSS, BY_LOGIT)
    weight = tl.load(weights + examples, mask=examples < num_examples, other=0.0)
    delta = tl.where(inside, delta * weight[:, None], 0.0)
    store_deltas(deltas, column_sums, delta, place, inside, units, num_units)
    by_example = tl.sum(tl.where(inside, value, 0.0).to(tl.float64), axis=1)
    tl.store(
        losses + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0),
        tl.sum(by_example * weight.to(tl.float64), axis=0),
    )


def tile_others(
    products_ET: Tensor, bias_T: Tensor | None, weight_E: Tensor, formula: UnitFormula
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss float64 [], the weighted slopes by the logits [E, T], and their sums over examples [T].

    The order of addition is within parts of 64 examples, then over the parts.

    Args:
        products_ET: Logits without the biases, float32.
        bias_T: float32, or None.
        weight_E: Weights of the units, float32.
        formula: Activation and loss.
    """
    num_examples, num_units = products_ET.shape
    delta_ET = torch.empty_like(products_ET)
    grid = triton.cdiv(num_units, _UNITS), triton.cdiv(num_examples, _EXAMPLES)
    column_sums_RT = torch.empty(grid[1], num_units, device=products_ET.device)
    losses = torch.empty(grid[0] * grid[1], dtype=torch.float64, device=products_ET.device)
    if losses.numel():
        _tile_others_kernel[grid](
            products_ET,  # [E, T] float32
            bias_T,  # [T] float32, or None
            weight_E,  # [E] float32
            delta_ET,  # [E, T] of the products' type, out
            column_sums_RT,  # [R, T] float32, out: R parts of the examples
            losses,  # [R x C] float64, out: C parts of the units
            num_examples,
            num_units,
            formula.numbers,
            ACTIVATION=formula.activation,
            LOSS=formula.loss,
            BY_LOGIT=formula.by_logit,
            EXAMPLES=_EXAMPLES,
            UNITS=_UNITS,
            num_warps=8,
            enable_fp_fusion=False,
        )
    return losses.sum(), delta_ET, column_sums_RT.sum(dim=0)
