"""Dropout: as the mathematics has it, and as DSSTNE does it."""

import math
from typing import Any

import torch
from torch import Tensor

from widenet.model.activations import SELU_ALPHA, SELU_SCALE, activate, sides
from widenet.spec.activations import Activation, Elu, LeakyRelu
from widenet.spec.network import Dialect

_OF_DSSTNE = ("sigmoid", "tanh", "relu", "linear", "leaky_relu", "elu", "selu")
"""The activations of hidden units of which DSSTNE's dropout is known."""


def dropped(
    activation: Activation, z_EH: Tensor, kept_EH: Tensor, probability: float, dialect: Dialect
) -> Tensor:
    """The activations float32 [E, H] of some sums, those that are not kept silenced.

    Differentiable.

    kept_EH: bool; those units are multiplied by 1 / (1 - probability), all others become 0. DSSTNE's dialect
    differs in three points. A sigmoid becomes 0.5, and what is kept stays as it is. elu and selu become their
    floor, and the layer is then moved back to mean 0 and variance 1. The way back takes the slope that
    belongs to a unit as it is after dropout, whether it was kept or not.
    """
    if dialect == "widenet" or activation.kind not in _OF_DSSTNE:
        return activate(activation, z_EH) * kept_EH / (1 - probability)
    units_EH, slope_EH = _of_dsstne(activation, z_EH.detach(), kept_EH, probability)
    through: Tensor = _Through.apply(z_EH, units_EH, slope_EH)  # type: ignore[no-untyped-call]
    return through


def _of_dsstne(
    activation: Activation, z_EH: Tensor, kept_EH: Tensor, probability: float
) -> tuple[Tensor, Tensor]:
    """Units after dropout, and their slopes by the sums."""
    a_EH, grown = activate(activation, z_EH), 1 / (1 - probability)
    kind = activation.kind
    if kind == "sigmoid":
        units_EH = torch.where(kept_EH, a_EH, 0.5)
        return units_EH, units_EH * (1 - units_EH)
    if kind in ("elu", "selu"):
        alpha, scale = (
            (activation.alpha, activation.scale) if isinstance(activation, Elu) else (SELU_ALPHA, SELU_SCALE)
        )
        floor = -scale * alpha
        factor = 1 / math.sqrt((1 - probability) * (1 + floor * floor * probability))
        units_EH = factor * torch.where(kept_EH, a_EH, floor) - factor * probability * floor
        return units_EH, torch.where(units_EH > 0, scale, units_EH - floor)
    units_EH = a_EH * kept_EH * grown
    if kind == "tanh":
        return units_EH, grown * (1 - (units_EH / grown).square())
    below, above = sides(activation) if isinstance(activation, LeakyRelu) else (float(kind == "linear"), 1.0)
    return units_EH, torch.where(units_EH > 0, torch.full_like(units_EH, above), below)


class _Through(torch.autograd.Function):
    """Units with a slope that somebody else knows."""

    @staticmethod
    def forward(context: Any, z: Tensor, units: Tensor, slope: Tensor) -> Tensor:
        del z
        context.save_for_backward(slope)
        return units.view_as(units)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = context.saved_tensors
        return gradient * slope, None, None
