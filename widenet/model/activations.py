"""Activations, and dropout; `_PLAIN` has the function of each kind without numbers of its own."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from widenet.devices import sent
from widenet.randomness import StepRandom
from widenet.spec.activations import Activation, Elu, LeakyRelu

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


def activate(spec: Activation, logits: Tensor) -> Tensor:
    """Return the activations of logits; row-wise kinds work over the last dimension. Differentiable."""
    match spec:
        case LeakyRelu():
            below, above = sides(spec)
            if above == 1:
                return functional.leaky_relu(logits, below)
            return torch.where(logits > 0, logits * above, logits)
        case Elu(alpha=alpha, scale=scale):
            raised = functional.elu(logits, alpha)
            return raised if scale == 1 else raised * scale
    return _PLAIN[spec.kind](logits)


def rises(spec: Activation) -> bool:
    """Return whether logits rank units as activations do; relu's do not, which makes all negative ones 0."""
    return spec.slope >= 0 if isinstance(spec, LeakyRelu) else spec.kind not in _NOT_RISING


def is_signed(spec: Activation) -> bool:
    """Return whether activations can be below 0."""
    return spec.kind not in _NOT_SIGNED


def sides(spec: LeakyRelu) -> tuple[float, float]:
    """Return the slopes below and above 0."""
    return min(spec.slope, 1.0), max(spec.slope, 1.0)


def _relu_max(z: Tensor) -> Tensor:
    positive = torch.relu(z)
    return _share(positive, positive.sum(dim=-1, keepdim=True))


def _share(parts: Tensor, total: Tensor) -> Tensor:
    return torch.where(
        total == 0, torch.zeros_like(parts), parts / total.clamp_min(torch.finfo(parts.dtype).tiny)
    )


_PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "selu": functional.selu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "linear": lambda z: z,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "softmax": lambda z: torch.softmax(z, dim=-1),
    "relu_max": _relu_max,
    "linear_max": lambda z: _share(z, z.abs().sum(dim=-1, keepdim=True)),
}
_NOT_RISING = ("relu", "gelu", "silu", "relu_max", "linear_max")
_NOT_SIGNED = ("sigmoid", "relu", "softplus", "softmax", "relu_max")


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
    units_EH, slope_EH = _resting(activation, z_EH.detach(), kept_EH, probability)
    zero_EH = (z_EH - z_EH.detach()).nan_to_num()  # also of infinite sums
    return units_EH + zero_EH * slope_EH


def _resting(
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
