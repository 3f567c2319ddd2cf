"""Hidden layers and convolutions: activations of sums, with normalization, dropout and the penalty."""

from math import prod

import torch
from torch import Tensor

from widenet.kernels.fixed_point import sum_by
from widenet.model.activations import activate, at_rest, kept, masked
from widenet.model.flow import Flow
from widenet.model.positions import Positions
from widenet.model.weight import shortening
from widenet.plan.weights import FOLLOWING, TRAINED
from widenet.spec.layers import ConvolutionLayer, HiddenLayer
from widenet.spec.parts import Sparseness

_FLOOR = 1e-6
"""Mean activations are kept this far from 0 and 1, where the sparseness penalty is infinite."""


def forward(layer: HiddenLayer | ConvolutionLayer, flow: Flow) -> Tensor:
    """Return the layer's values; in training, leave its penalty and the batch's statistics in the flow."""
    terms = flow.sums + flow.skips
    total_EH = sum(terms[1:], terms[0])
    if layer.bias:
        bias_C, positions = flow.trunk[f"{layer.name} bias"].tensor, prod(flow.layout.shapes[layer.name][1:])
        total_EH = total_EH + bias_C[:, None].expand(-1, positions).reshape(-1)
    if layer.batch_normalization is not None:
        total_EH = _normalized(layer, flow, total_EH)
    if flow.random is None:
        return activate(layer.activation, total_EH)
    if layer.delta_norm is not None:
        total_EH = shortened(total_EH, layer.delta_norm, flow.positions)
    a_EH = units_EH = activate(layer.activation, total_EH)
    if layer.dropout and layer.dropout_form == "mask":
        units_EH = masked(activate(layer.activation, total_EH), flow.random, layer.name, layer.dropout)
    elif layer.dropout:
        kept_EH = kept(a_EH, flow.random, layer.name, layer.dropout)
        units_EH = at_rest(layer.activation, total_EH, kept_EH, layer.dropout)
    if layer.sparseness is not None and len(a_EH):  # a batch without examples has no mean
        active_EH = units_EH if layer.sparseness.after_dropout else a_EH
        flow.penalties.append(penalty(layer.sparseness, active_EH))
    return units_EH


def penalty(spec: Sparseness, a_EH: Tensor) -> Tensor:
    """Return weight * sum over units of KL(target || mean activation of the batch); differentiable."""
    mean_H, target = a_EH.mean(dim=0), spec.target
    inside_H = mean_H.clamp(_FLOOR, 1 - _FLOOR)
    mean_H = inside_H.detach() + (mean_H - mean_H.detach()) if spec.pull_outside else inside_H
    divergence_H = target * torch.log(target / mean_H) + (1 - target) * torch.log((1 - target) / (1 - mean_H))
    return spec.weight * divergence_H.sum()


def _normalized(layer: HiddenLayer | ConvolutionLayer, flow: Flow, sums_EH: Tensor) -> Tensor:
    """Normalize sums by channel: by a batch over examples and positions, else by running statistics."""
    spec, (channels, *positions) = layer.batch_normalization, flow.layout.shapes[layer.name]
    assert spec is not None
    scale_C, shift_C, mean_C, variance_C = (
        flow.tensor(f"{layer.name} normalization {part}") for part in (*TRAINED, *FOLLOWING)
    )
    sums_ECP = sums_EH.view(len(sums_EH), channels, prod(positions))
    if flow.random is None or not len(sums_EH) or layer.frozen:
        factor_C = scale_C * torch.rsqrt(variance_C + spec.epsilon)
        return (sums_ECP * factor_C[:, None] + (shift_C - mean_C * factor_C)[:, None]).view_as(sums_EH)
    batch = torch.zeros_like(mean_C), torch.zeros_like(mean_C)
    values_ECP = torch.batch_norm(sums_ECP, scale_C, shift_C, *batch, True, 1.0, spec.epsilon, False)
    if len(sums_EH) * prod(positions) > 1:  # otherwise there is no variance
        flow.statistics[layer.name] = batch
    return values_ECP.view_as(sums_EH)


def shortened(z_EH: Tensor, limit: float | None, positions: Positions | None = None) -> Tensor:
    """Return the same sums; the backward pass shortens the gradient of each example's own loss to a limit.

    The gradient of the batch's loss is 1 / E of the examples' own gradients. E can be 0, for instance if no
    sequence has a next feature.

    Args:
        z_EH: Sums of a layer; [N, H] along a sequence.
        limit: The limit; None: no limit.
        positions: Positions of the sums along a sequence; those of one example count together.
    """
    if limit is None or not z_EH.requires_grad or not len(z_EH):
        return z_EH
    num_examples = len(z_EH) if positions is None else len(positions.ends_E)
    examples_N = None if positions is None else positions.examples_N

    def shorten(gradient_NH: Tensor) -> Tensor:
        square_N = gradient_NH.double().square().sum(dim=1)
        if examples_N is not None:
            square_N = sum_by(square_N, examples_N, num_examples)[examples_N]
        return gradient_NH * shortening(square_N.sqrt(), limit / num_examples).float()[:, None]

    same_EH = z_EH.view_as(z_EH)
    same_EH.register_hook(shorten)  # type: ignore[no-untyped-call]
    return same_EH
