"""Weighted means of similarities to the features of examples, compiled for CPUs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from widenet.kernels.compiled import compile_for, made_once

if TYPE_CHECKING:
    from torch import Tensor

    from widenet.sparse import SparseBatch


@made_once
def compiled_neighbours() -> Callable[..., int]:
    """Compile the loop of `neighbours.neighbour_means`.

    It takes arrays of the examples, their weights and the neighbours, the tile, 2^bits of a fraction, zeros
    for each unit, and the cells and means to fill, as many as the tile has. It returns how many are filled.
    """

    def fill(
        indptr: Any,
        feature_Z: Any,
        weight_Z: Any,
        weight_E: Any,
        key_Z: Any,
        similarity_Z: Any,
        size: Any,
        start: Any,
        scale: Any,
        sum_U: Any,
        cell_N: Any,
        mean_N: Any,
    ) -> int:
        units, number = len(sum_U), 0
        for example in range(len(indptr) - 1):
            first_cell, before = example * units, number
            for z in range(indptr[example], indptr[example + 1]):
                first, weight = feature_Z[z] * size + start, np.float64(weight_Z[z])
                low, high = 0, len(key_Z)
                while low < high:
                    middle = (low + high) >> 1
                    if key_Z[middle] < first:
                        low = middle + 1
                    else:
                        high = middle
                while low < len(key_Z) and key_Z[low] < first + units:
                    unit, term = key_Z[low] - first, int(similarity_Z[low] * weight * scale)
                    if term > 0:
                        if sum_U[unit] == 0:
                            cell_N[number] = first_cell + unit
                            number += 1
                        sum_U[unit] += term
                    low += 1
            for n in range(before, number):
                unit = cell_N[n] - first_cell
                mean_N[n] = sum_U[unit] / scale / weight_E[example]
                sum_U[unit] = 0
        return number

    whole, exact = "int64[::1]", "float64[::1]"
    arrays = f"{whole}, {whole}, float32[::1], {exact}, {whole}, float32[::1]"
    return compile_for(fill, f"int64({arrays}, int64, int64, float64, {whole}, {whole}, {exact})")


def neighbour_means(
    history: "SparseBatch",
    weight_E: "Tensor",
    key_Z: "Tensor",
    similarity_Z: "Tensor",
    size: int,
    start: int,
    units: int,
    fraction_bits: int,
) -> "tuple[Tensor, Tensor]":
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
    import torch  # kernels are compiled ahead by processes that do not load it

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
