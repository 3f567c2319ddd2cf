"""The attention layer: blocks of causal self-attention along a sequence."""

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, pad

from widenet.model.activations import activate, masked
from widenet.model.flow import Flow
from widenet.model.positions import Positions
from widenet.model.product import Factor, product
from widenet.spec.layers import AttentionLayer

EPSILON = 1e-8
"""Added to variances, as in the published code of SASRec."""


def forward(layer: AttentionLayer, flow: Flow) -> Tensor:
    """Return the layer's values."""
    (values_NU,), positions = flow.sources, flow.positions
    assert positions is not None
    if layer.positions == "absolute":
        vectors_TU = flow.tensor(f"{layer.name}/positions")
        spans = [vectors_TU[time].expand(size, -1) for time, size in enumerate(positions.sizes)]
        values_NU = values_NU + torch.cat([vectors_TU[:0], *spans])
    for name, part in (("attention", _attended), ("feed forward", _fed_forward)):
        added_NU = part(layer, flow, _normalized(layer, flow, name, values_NU))
        values_NU = values_NU + masked(added_NU, flow.random, f"{layer.name}/{name}", layer.dropout)
    if layer.normalize_output:
        values_NU = _normalized(layer, flow, "output", values_NU)
    return sum(flow.skips, values_NU)


def _attended(layer: AttentionLayer, flow: Flow, values_NU: Tensor) -> Tensor:
    """Return what attention adds, [N, U]."""
    assert flow.positions is not None
    heads = layer.heads, values_NU.shape[1] // layer.heads
    distances_THC = None
    if layer.positions == "relative":
        distances_THC = flow.tensor(f"{layer.name}/positions").view(-1, *heads)
    projected_NP = _product(layer, flow, "projections", values_NU)
    read_NHC = attention(projected_NP.view(-1, 3, *heads), distances_THC, flow.positions)
    return _product(layer, flow, "joined", read_NHC.flatten(start_dim=1))


def _fed_forward(layer: AttentionLayer, flow: Flow, values_NU: Tensor) -> Tensor:
    """Return what the two fully connected layers add, [N, U]."""
    sums_NI = _product(layer, flow, "inner", values_NU)
    return _product(layer, flow, "outer", activate(layer.activation, sums_NI))


def _product(layer: AttentionLayer, flow: Flow, name: str, values: Tensor) -> Tensor:
    """Return values times a matrix of the layer, plus its biases."""
    matrix = f"{layer.name}/{name}"
    return product(values, Factor([flow.tensor(matrix)], flow.blocks)) + flow.tensor(f"{matrix} bias")


def _normalized(layer: AttentionLayer, flow: Flow, name: str, values_NU: Tensor) -> Tensor:
    """Return the layer normalization of values: Ba, Kiros and Hinton, arXiv 1607.06450, equation 4."""
    scale_U, shift_U = (flow.tensor(f"{layer.name}/{name} {part}") for part in ("scale", "shift"))
    return layer_norm(values_NU, scale_U.shape, scale_U, shift_U, EPSILON)


def attention(projected_N3HC: Tensor, distances_THC: Tensor | None, positions: Positions) -> Tensor:
    """Return what each position and head reads, [N, H, C]; differentiable.

    This is the sum of the values at the position and at all earlier ones of its sequence, weighted by the
    softmax of query * (key + the vector of the distance) / sqrt(C). Sequences of about one length are filled
    up and multiplied together. No number depends on other sequences.

    Args:
        projected_N3HC: Queries, keys and values of N positions and H heads, C numbers each.
        distances_THC: Vectors of the distances 0 to T - 1; None: zeros. No sequence has more positions.
        positions: The positions.
    """
    lengths, shape = [count * length for count, length in positions.groups], projected_N3HC.shape[1:]
    filled = projected_N3HC.new_zeros(sum(lengths) + 1, *shape)
    filled = filled.index_copy(0, positions.places_N, projected_N3HC)[:-1]
    read = [
        _read(group.view(*size, *shape), distances_THC)
        for group, size in zip(torch.split(filled, lengths), positions.groups, strict=True)
    ]
    # Positions without a feature read zeros.
    return torch.cat([*read, filled.new_zeros(1, *shape[1:])]).index_select(0, positions.places_N)


def _read(projected_ET3HC: Tensor, distances_THC: Tensor | None) -> Tensor:
    """Return what the positions of sequences of one length read, [E x T, H, C]."""
    queries_EHTC, keys_EHTC, values_EHTC = projected_ET3HC.permute(2, 0, 3, 1, 4)
    num, heads, length, numbers = queries_EHTC.shape
    scores_EHTT = queries_EHTC @ keys_EHTC.transpose(2, 3)
    if distances_THC is not None:
        missing = max(length - len(distances_THC), 0)
        descending_HCT = pad(distances_THC[:length], (0, 0, 0, 0, 0, missing)).flip(0).permute(1, 2, 0)
        # With a number before each row, the products of time t begin t + 1 places further to the left.
        products = pad(queries_EHTC @ descending_HCT, (1, 0)).view(num, heads, length + 1, length)
        scores_EHTT = scores_EHTT + products[:, :, 1:]
    later_TT = torch.ones(length, length, dtype=torch.bool, device=scores_EHTT.device).triu(1)
    shares_EHTT = (scores_EHTT * numbers**-0.5).masked_fill(later_TT, -torch.inf).softmax(dim=3)
    read_EHTC: Tensor = shares_EHTT @ values_EHTC
    return read_EHTC.transpose(1, 2).flatten(end_dim=1)
