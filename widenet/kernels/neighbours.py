"""Weighted means of similarities to the features of examples, where there are any."""

import torch
from torch import Tensor

from widenet.kernels.compiled_neighbours import compiled_neighbours
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
    features = history.indptr, history.indices.long(), history.values_or_ones(), weight_E
    arrays = *features, key_Z, similarity_Z
    number = compiled_neighbours()(
        *(array.numpy() for array in arrays),
        *(size, start, 2.0**fraction_bits),
        *(torch.zeros(units, dtype=torch.int64).numpy(), cell_N.numpy(), mean_N.numpy()),
    )
    return cell_N[:number], mean_N[:number]
