"""The fully connected hidden layer."""

import torch
from torch import Tensor

from widenet.model.activations import activate
from widenet.model.draws import Draws
from widenet.spec.layers import HiddenLayer

_FLOOR = 1e-6
"""Mean activations are kept this far from 0 and 1, where the sparseness penalty is infinite."""


def forward(spec: HiddenLayer, sums: list[Tensor], bias: Tensor | None, draws: Draws | None) -> tuple[Tensor, Tensor | None]:
    """Activations float32 [E, H] and, where the layer has one, its penalty. Differentiable.

    sums: one product of a source and its weights a source, float32 [E, H] each.
    draws: the step's random numbers; None outside training.
    """
    total_EH = sums[0]
    for other in sums[1:]:
        total_EH = total_EH + other
    if bias is not None:
        total_EH = total_EH + bias
    a_EH = activate(spec.activation, total_EH)
    penalty = None if draws is None or spec.sparseness is None else sparseness(a_EH, spec.sparseness.target, spec.sparseness.weight)
    if draws is not None and spec.dropout:
        kept_EH = draws.kept(f"dropout/{spec.name}", tuple(a_EH.shape), spec.dropout, a_EH.device)
        a_EH = a_EH * kept_EH / (1 - spec.dropout)
    return a_EH, penalty


def sparseness(a_EH: Tensor, target: float, weight: float) -> Tensor:
    """weight * sum over units of KL(target || mean activation of the batch)."""
    mean_H = a_EH.mean(dim=0).clamp(_FLOOR, 1 - _FLOOR)
    divergence_H = target * torch.log(target / mean_H) + (1 - target) * torch.log((1 - target) / (1 - mean_H))
    return weight * divergence_H.sum()
