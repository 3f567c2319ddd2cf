"""Activations and their slopes."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from widenet.spec.activations import Activation, Elu, LeakyRelu

SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805

_OF_UNITS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "selu": functional.selu,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


def activate(spec: Activation, logits: Tensor) -> Tensor:
    """The activation of some logits; the row-wise kinds over the last dimension. Differentiable."""
    match spec:
        case LeakyRelu(slope=slope):
            return (
                functional.leaky_relu(logits, slope)
                if slope <= 1
                else torch.where(logits > 0, logits * slope, logits)
            )
        case Elu(alpha=alpha, scale=scale):
            raised = functional.elu(logits, alpha)
            return raised if scale == 1 else raised * scale
    match spec.kind:
        case "linear":
            return logits
        case "softmax":
            return torch.softmax(logits, dim=-1)
        case "relu_max":
            positive = torch.relu(logits)
            return _share(positive, positive.sum(dim=-1, keepdim=True))
        case "linear_max":
            return _share(logits, logits.abs().sum(dim=-1, keepdim=True))
        case kind:
            return _OF_UNITS[kind](logits)


def _share(parts: Tensor, total: Tensor) -> Tensor:
    return torch.where(
        total == 0, torch.zeros_like(parts), parts / total.clamp_min(torch.finfo(parts.dtype).tiny)
    )


def sides(spec: LeakyRelu) -> tuple[float, float]:
    """The slopes below and above 0."""
    return min(spec.slope, 1.0), max(spec.slope, 1.0)


def slope(spec: Activation, logits: Tensor, activations: Tensor) -> Tensor | None:
    """The derivative of a single-unit activation; None where it is one everywhere.

    logits, activations: of equal shape; `activations` is what `activate` gave.
    At the kinks of relu, leaky_relu, elu and selu the derivative from the left is taken, as torch does.
    """
    match spec:
        case LeakyRelu():
            below, above = sides(spec)
            return torch.where(logits > 0, torch.full_like(logits, above), below)
        case Elu(alpha=alpha, scale=scale):
            return torch.where(logits > 0, scale, activations + scale * alpha)
    match spec.kind:
        case "linear":
            return None
        case "sigmoid":
            return activations * (1 - activations)
        case "tanh":
            return 1 - activations * activations
        case "relu":
            return (logits > 0).to(logits.dtype)
        case "selu":
            return torch.where(logits > 0, SELU_SCALE, activations + SELU_SCALE * SELU_ALPHA)
        case "softplus":
            return torch.sigmoid(logits)
        case "softsign":
            return (1 + logits.abs()).pow(-2)
        case "gelu":
            density = torch.exp(-0.5 * logits * logits) / math.sqrt(2 * math.pi)
            return 0.5 * (1 + torch.erf(logits / math.sqrt(2))) + logits * density
        case "silu":
            gate = torch.sigmoid(logits)
            return gate * (1 + logits * (1 - gate))
        case kind:
            raise AssertionError(f"{kind} looks at the whole layer")
