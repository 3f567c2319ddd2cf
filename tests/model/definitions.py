"""Activations and losses in plain torch, written from the formulas of the documents, over whole layers."""

from collections.abc import Callable

import torch
from torch import Tensor

from widenet.spec.activations import Activation, Elu, LeakyRelu
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import CrossEntropy, PlainLoss, ScaledMarginalCrossEntropy

TINY = 1e-300


def activation(spec: Activation, z: Tensor) -> Tensor:
    """Return the activations of logits [E, units]."""
    match spec:
        case LeakyRelu(slope=slope):
            return torch.maximum(z, slope * z)
        case Elu(alpha=alpha, scale=scale):
            return scale * torch.where(z > 0, z, alpha * (torch.exp(z.clamp(max=0)) - 1))
    return _PLAIN_ACTIVATIONS[spec.kind](z)


_PLAIN_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: 1 / (1 + torch.exp(-z)),
    "tanh": lambda z: (torch.exp(2 * z) - 1) / (torch.exp(2 * z) + 1),
    "relu": lambda z: torch.where(z > 0, z, 0.0),
    "selu": lambda z: (
        1.0507009873554805 * torch.where(z > 0, z, 1.6732632423543772 * (torch.exp(z.clamp(max=0)) - 1))
    ),
    "softplus": lambda z: torch.log(1 + torch.exp(z)),
    "softsign": lambda z: z / (1 + z.abs()),
    "linear": lambda z: z,
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / 2**0.5)),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "softmax": lambda z: torch.exp(z) / torch.exp(z).sum(dim=1, keepdim=True),
    "relu_max": lambda z: z * (z > 0) / (z * (z > 0)).sum(dim=1, keepdim=True).clamp_min(TINY),
    "linear_max": lambda z: z / z.abs().sum(dim=1, keepdim=True),
}
"""The activations without parameters, as documented."""


def example_losses(
    output: OutputLayer, a: Tensor, t: Tensor, stored: Tensor, stands: Tensor | None = None
) -> Tensor:
    """Return the loss of every example, [E].

    Args:
        output: The output layer.
        a: Activations [E, L].
        t: Targets [E, L].
        stored: Which targets are stored, bool [E, L].
        stands: Number of units that each unit represents if it is not a stored target, [L]; None: 1.
    """
    loss, is_softmax = output.loss, output.activation.kind == "softmax"
    counted = torch.ones_like(a[:1]) if stands is None else stands
    cells = _softmax_cells(loss, a, t) if is_softmax else None
    cells = _cells(loss, a, t, stored) if cells is None else cells
    return torch.where(stored, cells, cells * counted).sum(dim=1)


def _softmax_cells(loss: object, a: Tensor, t: Tensor) -> Tensor | None:
    """Return the cross-entropies under a softmax, unit by unit [E, L]; None for other losses."""
    share = t / t.sum(dim=1, keepdim=True).clamp_min(TINY)
    match loss:
        case CrossEntropy():
            q = share if loss.targets == "share" else t
            return torch.where(q > 0, -q * torch.log(a), 0.0)
        case ScaledMarginalCrossEntropy():
            by_data = loss.kind == "data_scaled_marginal_cross_entropy"
            strength = loss.one_scale * (t if by_data else share)
            return torch.where((t > 0) & (a < loss.one_target), -strength * torch.log(a), 0.0)
    return None


def _cells(loss: object, a: Tensor, t: Tensor, stored: Tensor) -> Tensor:
    """Return the loss of each unit, [E, L]."""
    match loss:
        case CrossEntropy():
            return -t * torch.log(a) - (1 - t) * torch.log(1 - a)
        case ScaledMarginalCrossEntropy():
            by_data = loss.kind == "data_scaled_marginal_cross_entropy"
            strength = loss.one_scale * (t if by_data else torch.ones_like(t))
            ones = torch.where(a < loss.one_target, -strength * torch.log(a), 0.0)
            zeros = torch.where(a > loss.zero_target, -loss.zero_scale * torch.log(1 - a), 0.0)
            return torch.where(t > 0, ones, zeros)
        case PlainLoss(kind="l1"):
            return (a - t).abs()
        case PlainLoss(kind="l2"):
            return (a - t) ** 2 / 2
        case PlainLoss(kind="hinge"):
            return (1 - torch.where(stored, t, -1.0) * a).clamp_min(0)
        case PlainLoss(kind="l2_hinge"):
            distance = a - t.abs()
            return torch.where(t > 0, distance.clamp_max(0), distance.clamp_min(0)) ** 2 / 2
    raise AssertionError(f"no definition of {loss!r}")
