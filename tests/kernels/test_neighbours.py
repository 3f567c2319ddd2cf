"""Means of similarities: every cell against exact sums in Python, and terms against torch's to the bit."""

import numpy as np
import pytest
import torch

from widenet.kernels import neighbour_means
from widenet.kernels.neighbour_means import EMPTY, FRACTION_BITS, NeighbourLists
from widenet.sparse import SparseBatch

BITS = FRACTION_BITS


def rows_of(rng, width, number):
    return [rng.permutation(width)[: rng.integers(0, 12)].tolist() for _ in range(number)] + [[]]


def neighbours_of(rng, width, size):
    """Sorted keys with empty places at the end, and similarities, of which some are too small to count."""
    pairs = np.sort(rng.permutation(width * size)[: 9 * size])
    keys = np.concatenate([pairs, np.full(5, EMPTY)])
    similarities = rng.random(len(keys), dtype=np.float32)
    similarities[::7] = 2.0**-50
    return torch.from_numpy(keys), torch.from_numpy(similarities)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_means_have_the_bits_of_torch(weighted, monkeypatch):
    rng = np.random.default_rng(weighted)
    size = 67
    history = SparseBatch.from_lists(rows_of(rng, 200, 40))
    weights = torch.from_numpy(rng.random(history.num_entries, dtype=np.float32))
    history = history.with_values(weights if weighted else None)
    weight_E = torch.from_numpy(rng.random(41) + 1)
    lists = NeighbourLists(range(2, 200, 3), *neighbours_of(rng, 200, size))
    for start, units in ((0, size), (5, 37), (size - 1, 1)):
        found = []
        for is_native in (True, False):
            monkeypatch.setattr(neighbour_means, "library_runs", lambda _, is_native=is_native: is_native)
            cell_N, mean_N = lists.means(history, weight_E, start, units)
            found.append(dict(zip(cell_N.tolist(), mean_N.tolist(), strict=True)))
        assert found[0] == found[1]
        assert len(found[0]) > 0 or units == 1
