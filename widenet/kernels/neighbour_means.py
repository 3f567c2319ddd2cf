"""Weighted means of similarities to the features of examples."""

import torch
from torch import Tensor

from widenet.kernels.native import call, check_dtype
from widenet.sparse import SparseBatch


def neighbour_means(
    history: SparseBatch,
    weight_E: Tensor,
    key_Z: Tensor,
    similarity_Z: Tensor,
    size: int,
    start: int,
    units: int,
    fraction_bits: int,
) -> tuple[Tensor, Tensor]:
    """Return the cells [E, `units`] of a tile whose mean of similarities is not zero, and their means.

    Args:
        history: E examples, each feature once, with its weight as value.
        weight_E: Sum of the weights of each example, float64.
        key_Z: Feature x `size` + row of the unit, ascending, int64.
        similarity_Z: float32.
        size: Units of the shard.
        start: First unit, as row of the shard.
        units: Number of units.
        fraction_bits: Similarities are added as multiples of 2^-`fraction_bits`.

    Returns:
        Example x `units` + unit, int64 [N], and the means, float64 [N].
    """
    cell_N = torch.empty(history.num_examples * units, dtype=torch.int64)
    mean_N = torch.empty(len(cell_N), dtype=torch.float64)
    examples = (
        history.indptr,
        history.num_examples,
        history.indices.long(),
        history.values_or_ones(),
        weight_E,
    )
    check_dtype(torch.int64, history.indptr, key_Z)
    check_dtype(torch.float32, history.values_or_ones(), similarity_Z)
    check_dtype(torch.float64, weight_E)
    tile = size, start, units, 2.0**fraction_bits
    number = call("neighbour_means", *examples, key_Z, similarity_Z, len(key_Z), *tile, cell_N, mean_N)
    return cell_N[:number], mean_N[:number]
