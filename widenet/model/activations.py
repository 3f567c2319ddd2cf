"""Activations: `_PLAIN` has the function of each kind without numbers of its own."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

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
