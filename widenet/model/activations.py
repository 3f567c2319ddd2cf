"""Activations: `_PLAIN` has an entry for each kind without parameters."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from widenet.spec.activations import Activation, Elu, LeakyRelu

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


class Definition(NamedTuple):
    """An activation: its function, and the properties that the rest of widenet needs."""

    function: Callable[[Tensor], Tensor]
    """The activations of logits, differentiable. Row-wise kinds divide by a sum over the last dimension."""
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


def sides(spec: LeakyRelu) -> tuple[float, float]:
    """Return the slopes below and above 0."""
    return min(spec.slope, 1.0), max(spec.slope, 1.0)


def _leaky_relu(spec: LeakyRelu) -> Definition:
    below, above = sides(spec)

    def function(z: Tensor) -> Tensor:
        return functional.leaky_relu(z, below) if above == 1 else torch.where(z > 0, z * above, z)

    return Definition(function, rising=spec.slope >= 0, signed=True)


def _elu(alpha: float, scale: float) -> Definition:
    def function(z: Tensor) -> Tensor:
        raised = functional.elu(z, alpha)
        return raised if scale == 1 else raised * scale

    return Definition(function, rising=True, signed=True)


def _relu_max(z: Tensor) -> Tensor:
    positive = torch.relu(z)
    return _share(positive, positive.sum(dim=-1, keepdim=True))


def _share(parts: Tensor, total: Tensor) -> Tensor:
    return torch.where(
        total == 0, torch.zeros_like(parts), parts / total.clamp_min(torch.finfo(parts.dtype).tiny)
    )


_PLAIN: dict[str, Definition] = {
    "sigmoid": Definition(torch.sigmoid, rising=True, signed=False),
    "tanh": Definition(torch.tanh, rising=True, signed=True),
    "relu": Definition(torch.relu, rising=False, signed=False),
    "selu": Definition(functional.selu, rising=True, signed=True),
    "softplus": Definition(functional.softplus, rising=True, signed=False),
    "softsign": Definition(functional.softsign, rising=True, signed=True),
    "linear": Definition(lambda z: z, rising=True, signed=True),
    "gelu": Definition(functional.gelu, rising=False, signed=True),
    "silu": Definition(functional.silu, rising=False, signed=True),
    "softmax": Definition(lambda z: torch.softmax(z, dim=-1), rising=True, signed=False),
    "relu_max": Definition(_relu_max, rising=False, signed=False),
    "linear_max": Definition(
        lambda z: _share(z, z.abs().sum(dim=-1, keepdim=True)), rising=False, signed=True
    ),
}
"""By kind."""
