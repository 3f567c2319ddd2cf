"""Dropout: by a mask, and to the rest value of each activation."""

import math

import torch
from torch import Tensor

from widenet.devices import sent
from widenet.model.activations import SELU_ALPHA, SELU_SCALE, activate, sides
from widenet.randomness import StepRandom
from widenet.spec.activations import Activation, Elu, LeakyRelu


def masked(values: Tensor, random: StepRandom | None, purpose: str, probability: float) -> Tensor:
    """Return values after a step's dropout by a mask; outside training, the values."""
    if random is None or not probability:
        return values
    return values * kept(values, random, purpose, probability) / (1 - probability)


def kept(values: Tensor, random: StepRandom, purpose: str, probability: float) -> Tensor:
    """Return which of some values a step's dropout keeps, bool of their shape."""
    mask = random.kept(f"dropout/{purpose}", tuple(values.shape), probability)
    return sent(torch.from_numpy(mask), values.device)


def at_rest(activation: Activation, z_EH: Tensor, kept_EH: Tensor, probability: float) -> Tensor:
    """Return the activations of sums after dropout, as `dropout_form` "rest" has it; differentiable.

    Args:
        activation: Activation of the units.
        z_EH: Sums, float32 [E, H].
        kept_EH: Which units stay, bool [E, H].
        probability: Share of the units that are dropped.
    """
    units_EH, slope_EH = _with_slopes(activation, z_EH.detach(), kept_EH, probability)
    return units_EH + (z_EH - z_EH.detach()) * slope_EH


def _with_slopes(
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
