"""What fully connected hidden layers and convolutions make of their sums."""

from collections.abc import Callable

import torch
from torch import Tensor

from widenet.model.activations import activate
from widenet.model.draws import Draws
from widenet.spec.layers import HiddenLayer
from widenet.spec.spatial import ConvolutionLayer

_FLOOR = 1e-6
"""Mean activations are kept this far from 0 and 1, where the sparseness penalty is infinite."""


def forward(
    spec: HiddenLayer | ConvolutionLayer,
    sums: list[Tensor],
    bias: Tensor | None,
    draws: Draws | None,
    normalized: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Activations float32 [E, H] and, where the layer has one, its penalty. Differentiable.

    sums: one product of a source and its weights a source, and the units of layers to add, float32 [E, H] each. bias: float32 [H].
    draws: the step's random numbers; None outside training. normalized: the batch normalization of the layer's sums.
    """
    total_EH = sums[0]
    for other in sums[1:]:
        total_EH = total_EH + other
    if bias is not None:
        total_EH = total_EH + bias
    if normalized is not None:
        total_EH = normalized(total_EH)
    a_EH = activate(spec.activation, total_EH)
    wanted = spec.sparseness if isinstance(spec, HiddenLayer) else None
    penalty = None if draws is None or wanted is None else sparseness(a_EH, wanted.target, wanted.weight)
    if draws is not None and spec.dropout:
        kept_EH = draws.kept(f"dropout/{spec.name}", tuple(a_EH.shape), spec.dropout, a_EH.device)
        a_EH = a_EH * kept_EH / (1 - spec.dropout)
    return a_EH, penalty


def sparseness(a_EH: Tensor, target: float, weight: float) -> Tensor:
    """weight * sum over units of KL(target || mean activation of the batch)."""
    mean_H = a_EH.mean(dim=0).clamp(_FLOOR, 1 - _FLOOR)
    divergence_H = target * torch.log(target / mean_H) + (1 - target) * torch.log((1 - target) / (1 - mean_H))
    return weight * divergence_H.sum()
