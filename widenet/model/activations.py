"""Activations and their slopes: `_PLAIN` has an entry for each kind without parameters."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from widenet.spec.activations import ROW_WISE, Activation, Elu, LeakyRelu

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


class Definition(NamedTuple):
    """An activation: its function, its slope, and the properties that the rest of widenet needs."""

    function: Callable[[Tensor], Tensor]
    """The activations of logits, differentiable. Row-wise kinds divide by a sum over the last dimension."""
    slope: Callable[[Tensor, Tensor], Tensor] | None
    """The derivative, from (logits, activations) of equal shape; at a kink that from the left, as in torch.

    None: the derivative is 1 everywhere, or the kind is row-wise.
    """
    rising: bool
    """Whether logits rank units as activations do. Those of relu do not: it makes all negative ones 0."""
    signed: bool
    """Whether activations can be below 0."""


def definition(spec: Activation) -> Definition:
    """Return the definition of an activation as a document writes it."""
    match spec:
        case LeakyRelu():
            return _leaky_relu(spec)
        case Elu(alpha=alpha, scale=scale):
            return _elu(alpha, scale)
    return _PLAIN[spec.kind]


def activate(spec: Activation, logits: Tensor) -> Tensor:
    """Return the activations of logits; row-wise kinds work over the last dimension. Differentiable."""
    return definition(spec).function(logits)


def slope(spec: Activation, logits: Tensor, activations: Tensor) -> Tensor | None:
    """Return the derivative of a single-unit activation; None if it is 1 everywhere.

    Args:
        spec: An activation that is not row-wise.
        logits: Of any shape.
        activations: What `activate` gave for them.
    """
    assert spec.kind not in ROW_WISE, f"{spec.kind} looks at the whole layer"
    derivative = definition(spec).slope
    return None if derivative is None else derivative(logits, activations)


def sides(spec: LeakyRelu) -> tuple[float, float]:
    """Return the slopes below and above 0."""
    return min(spec.slope, 1.0), max(spec.slope, 1.0)


def _leaky_relu(spec: LeakyRelu) -> Definition:
    below, above = sides(spec)

    def function(z: Tensor) -> Tensor:
        return functional.leaky_relu(z, below) if above == 1 else torch.where(z > 0, z * above, z)

    def derivative(z: Tensor, a: Tensor) -> Tensor:
        return torch.where(z > 0, torch.full_like(z, above), below)

    return Definition(function, derivative, rising=spec.slope >= 0, signed=True)


def _elu(alpha: float, scale: float) -> Definition:
    def function(z: Tensor) -> Tensor:
        raised = functional.elu(z, alpha)
        return raised if scale == 1 else raised * scale

    def derivative(z: Tensor, a: Tensor) -> Tensor:
        return torch.where(z > 0, scale, a + scale * alpha)

    return Definition(function, derivative, rising=True, signed=True)


def _gelu_slope(z: Tensor, a: Tensor) -> Tensor:
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * density


def _silu_slope(z: Tensor, a: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate))


def _relu_max(z: Tensor) -> Tensor:
    positive = torch.relu(z)
    return _share(positive, positive.sum(dim=-1, keepdim=True))


def _share(parts: Tensor, total: Tensor) -> Tensor:
    return torch.where(
        total == 0, torch.zeros_like(parts), parts / total.clamp_min(torch.finfo(parts.dtype).tiny)
    )


_PLAIN: dict[str, Definition] = {
    "sigmoid": Definition(torch.sigmoid, lambda z, a: a * (1 - a), rising=True, signed=False),
    "tanh": Definition(torch.tanh, lambda z, a: 1 - a * a, rising=True, signed=True),
    "relu": Definition(torch.relu, lambda z, a: (z > 0).to(z.dtype), rising=False, signed=False),
    "selu": Definition(
        functional.selu,
        lambda z, a: torch.where(z > 0, SELU_SCALE, a + SELU_SCALE * SELU_ALPHA),
        rising=True,
        signed=True,
    ),
    "softplus": Definition(functional.softplus, lambda z, a: torch.sigmoid(z), rising=True, signed=False),
    "softsign": Definition(functional.softsign, lambda z, a: (1 + z.abs()).pow(-2), rising=True, signed=True),
    "linear": Definition(lambda z: z, None, rising=True, signed=True),
    "gelu": Definition(functional.gelu, _gelu_slope, rising=False, signed=True),
    "silu": Definition(functional.silu, _silu_slope, rising=False, signed=True),
    "softmax": Definition(lambda z: torch.softmax(z, dim=-1), None, rising=True, signed=False),
    "relu_max": Definition(_relu_max, None, rising=False, signed=False),
    "linear_max": Definition(
        lambda z: _share(z, z.abs().sum(dim=-1, keepdim=True)), None, rising=False, signed=True
    ),
}
"""By kind."""
