"""Dropout: by a mask, and to the rest value of each activation."""

import math
from typing import Any

import torch
from torch import Tensor

from widenet.devices import sent
from widenet.model.activations import SELU_ALPHA, SELU_SCALE, activate, sides
from widenet.randomness import StepRandom
from widenet.spec.activations import Activation, Elu, LeakyRelu
from widenet.spec.parts import DropoutForm


def dropped(
    activation: Activation, z_EH: Tensor, kept_EH: Tensor, probability: float, form: DropoutForm
) -> Tensor:
    """Return the activations of sums after dropout; differentiable.

    Args:
        activation: Activation of the units.
        z_EH: Sums, float32 [E, H].
        kept_EH: Which units stay, bool [E, H].
        probability: Share of the units that are dropped.
        form: "mask" multiplies kept units by 1 / (1 - probability) and sets the others to 0. "rest" is
            described at `HiddenLayer.dropout_form`.

    Returns:
        Units float32 [E, H].
    """
    if form == "mask":
        return activate(activation, z_EH) * kept_EH / (1 - probability)
    units_EH, slope_EH = _at_rest(activation, z_EH.detach(), kept_EH, probability)
    through: Tensor = _Through.apply(z_EH, units_EH, slope_EH)  # type: ignore[no-untyped-call]
    return through


def masked(values: Tensor, random: StepRandom | None, purpose: str, probability: float) -> Tensor:
    """Return values after a step's dropout by a mask; outside training, the values."""
    if random is None or not probability:
        return values
    return values * kept(values, random, purpose, probability) / (1 - probability)


def kept(values: Tensor, random: StepRandom, purpose: str, probability: float) -> Tensor:
    """Return which of some values a step's dropout keeps, bool of their shape."""
    mask = random.kept(f"dropout/{purpose}", tuple(values.shape), probability)
    return sent(torch.from_numpy(mask), values.device)


def _at_rest(
    activation: Activation, z_EH: Tensor, kept_EH: Tensor, probability: float
) -> tuple[Tensor, Tensor]:
    """Return the units after dropout, and their slopes by the sums."""
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
    """Units with an explicit slope for the backward pass."""

    @staticmethod
    def forward(context: Any, z: Tensor, units: Tensor, slope: Tensor) -> Tensor:
        del z
        context.save_for_backward(slope)
        return units.view_as(units)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = context.saved_tensors
        return gradient * slope, None, None
