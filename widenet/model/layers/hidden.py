"""Fully connected hidden layers, and the steps after the sums that convolutions share with them."""

from collections.abc import Callable
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from widenet.model.activations import activate
from widenet.model.dropout import dropped, kept
from widenet.model.layers import Flow, LayerKind
from widenet.model.limits import shortened
from widenet.model.normalization import by_batch, by_statistics, running
from widenet.model.positions import Positions
from widenet.randomness import StepRandom
from widenet.spec.layers import HiddenLayer
from widenet.spec.spatial import ConvolutionLayer

_FLOOR = 1e-6
"""Mean activations are kept this far from 0 and 1, where the sparseness penalty is infinite."""


def forward(
    spec: HiddenLayer | ConvolutionLayer,
    sums: list[Tensor],
    bias: Tensor | None,
    random: StepRandom | None,
    normalized: Callable[[Tensor], Tensor] | None = None,
    positions: Positions | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Activations float32 [E, H] and, where the layer has one, its penalty.

    Differentiable.

    sums: one product of a source and its weights a source, and the units of layers to add, float32 [E, H]
    each. bias: float32 [H].
    random: the step's random numbers; None outside training. normalized: the batch normalization of the
    layer's sums.
    positions: where the layer goes along a sequence; E is then their number.
    """
    total_EH = sum(sums[1:], sums[0])
    if bias is not None:
        total_EH = total_EH + bias
    if normalized is not None:
        total_EH = normalized(total_EH)
    if random is None:
        return activate(spec.activation, total_EH), None
    total_EH = shortened(total_EH, spec.delta_norm, positions)
    a_EH = units_EH = activate(spec.activation, total_EH)
    if spec.dropout:
        kept_EH = kept(a_EH, random, spec.name, spec.dropout)
        units_EH = dropped(spec.activation, total_EH, kept_EH, spec.dropout, spec.dropout_form)
    target = spec.sparseness
    if target is None or not len(a_EH):  # a batch without examples has no mean
        return units_EH, None
    active_EH = units_EH if target.after_dropout else a_EH
    return units_EH, sparseness(active_EH, target.target, target.weight, target.pull_outside)


def sparseness(a_EH: Tensor, target: float, weight: float, pull_outside: bool = False) -> Tensor:
    """weight * sum over units of KL(target || mean activation of the batch).

    pull_outside: units whose mean is beyond the floor get the gradient at the floor.
    """
    mean_H = a_EH.mean(dim=0)
    inside_H = mean_H.clamp(_FLOOR, 1 - _FLOOR)
    mean_H = inside_H.detach() + (mean_H - mean_H.detach()) if pull_outside else inside_H
    divergence_H = target * torch.log(target / mean_H) + (1 - target) * torch.log((1 - target) / (1 - mean_H))
    return weight * divergence_H.sum()


Spec = TypeVar("Spec", bound=HiddenLayer | ConvolutionLayer)


class Activated(LayerKind[Spec]):
    """Layers that make activations of their sums."""

    def forward(self, layer: Spec, flow: Flow) -> Tensor:
        """See `LayerKind.forward`."""
        bias = _each_unit(layer, flow) if layer.bias else None
        normalized = None if layer.batch_normalization is None else _normalization(layer, flow)
        units_EH, penalty = forward(
            layer, flow.sums + flow.skips, bias, flow.random, normalized, flow.positions
        )
        if penalty is not None:
            flow.penalties.append(penalty)
        return units_EH


KIND = Activated[HiddenLayer](fills_rows=False)


def _each_unit(layer: HiddenLayer | ConvolutionLayer, flow: Flow) -> Tensor:
    """Return the biases of a layer's channels, each for all its positions."""
    bias_C = flow.tensor(f"{layer.name} bias")
    positions = prod(flow.layout.shapes[layer.name][1:])
    return bias_C[:, None].expand(-1, positions).reshape(-1)


def _normalization(layer: HiddenLayer | ConvolutionLayer, flow: Flow) -> Callable[[Tensor], Tensor]:
    """Return the batch normalization of a layer.

    In training it leaves the batch's statistics in the flow, unless the layer is frozen.
    """
    spec, (channels, *positions) = layer.batch_normalization, flow.layout.shapes[layer.name]
    assert spec is not None
    scale_C, shift_C = (flow.tensor(f"{layer.name} normalization {part}") for part in ("scale", "shift"))

    def normalized(sums_EH: Tensor) -> Tensor:
        sums_ECP = sums_EH.view(len(sums_EH), channels, prod(positions))
        if flow.random is not None and len(sums_EH) and not layer.frozen:
            values, statistics = by_batch(sums_ECP, scale_C, shift_C, spec)
            if statistics is not None:
                flow.statistics[layer.name] = statistics
        else:
            values = by_statistics(sums_ECP, scale_C, shift_C, running(flow.trunk, layer.name), spec)
        return values.view_as(sums_EH)

    return normalized
