"""Causal self-attention along sequences: those of about one length are filled up and multiplied together."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.model.positions import Positions


def attention(projected_N3HC: Tensor, distances_THC: Tensor | None, positions: Positions) -> Tensor:
    """Return what each position and head reads, [N, H, C]; differentiable.

    This is the sum of the values at the position and at all earlier ones of its sequence, weighted by the
    softmax of query * (key + the vector of the distance) / sqrt(C). No number depends on other sequences.

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
