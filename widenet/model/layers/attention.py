"""The attention layer."""

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from widenet.model.activations import activate
from widenet.model.attention import attention
from widenet.model.dropout import masked
from widenet.model.layers import Flow, LayerKind
from widenet.model.product import Whole, product
from widenet.spec.sequential import AttentionLayer

EPSILON = 1e-8
"""Added to variances, as in the published code of SASRec."""


class Attention(LayerKind[AttentionLayer]):
    """Blocks of self-attention along a sequence."""

    def forward(self, layer: AttentionLayer, flow: Flow) -> Tensor:
        """See `LayerKind.forward`."""
        (values_NU,) = flow.sources
        if layer.positions == "absolute":
            values_NU = values_NU + _of_positions(layer, flow)
        for name, part in (("attention", _attended), ("feed forward", _fed_forward)):
            added_NU = part(layer, flow, values_NU)
            values_NU = values_NU + masked(added_NU, flow.random, f"{layer.name}/{name}", layer.dropout)
        if layer.normalize_output:
            values_NU = _normalized(layer, flow, "output", values_NU)
        return sum(flow.skips, values_NU)


KIND = Attention()


def _of_positions(layer: AttentionLayer, flow: Flow) -> Tensor:
    """Return the vector of each position, [N, U]."""
    assert flow.positions is not None
    vectors_TU = flow.tensor(f"{layer.name}/positions")
    spans = [vectors_TU[time].expand(size, -1) for time, size in enumerate(flow.positions.sizes)]
    return torch.cat([vectors_TU[:0], *spans])


def _attended(layer: AttentionLayer, flow: Flow, values_NU: Tensor) -> Tensor:
    """Return what attention adds, [N, U]."""
    assert flow.positions is not None
    projected_NP = _product(layer, flow, "projections", _normalized(layer, flow, "attention", values_NU))
    heads = layer.heads, values_NU.shape[1] // layer.heads
    distances_THC = None
    if layer.positions == "relative":
        distances_THC = flow.tensor(f"{layer.name}/positions").view(-1, *heads)
    read_NHC = attention(projected_NP.view(-1, 3, *heads), distances_THC, flow.positions)
    return _product(layer, flow, "joined", read_NHC.flatten(start_dim=1))


def _fed_forward(layer: AttentionLayer, flow: Flow, values_NU: Tensor) -> Tensor:
    """Return what the two fully connected layers add, [N, U]."""
    sums_NI = _product(layer, flow, "inner", _normalized(layer, flow, "feed forward", values_NU))
    return _product(layer, flow, "outer", activate(layer.activation, sums_NI))


def _product(layer: AttentionLayer, flow: Flow, name: str, values: Tensor) -> Tensor:
    """Return values times a matrix of the layer, plus its biases."""
    matrix = f"{layer.name}/{name}"
    return product(values, Whole(flow.tensor(matrix), flow.blocks)) + flow.tensor(f"{matrix} bias")


def _normalized(layer: AttentionLayer, flow: Flow, name: str, values_NU: Tensor) -> Tensor:
    """Return the layer normalization of values: Ba, Kiros and Hinton, arXiv 1607.06450, equation 4."""
    scale_U, shift_U = (flow.tensor(f"{layer.name}/{name} {part}") for part in ("scale", "shift"))
    return layer_norm(values_NU, scale_U.shape, scale_U, shift_U, EPSILON)
