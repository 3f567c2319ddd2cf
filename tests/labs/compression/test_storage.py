"""Pruned weights: which stay, what they become, and where they are."""

import numpy as np
import pytest

from labs.compression.storage import distances
from labs.compression.vectors import few_bits


@pytest.fixture
def values():
    return np.random.default_rng(0).standard_normal(3000).astype(np.float32)


@pytest.mark.parametrize("bits", [1, 3, 5])
def test_places_come_back_from_distances(bits):
    mask = np.random.default_rng(bits).random(2000) < 0.05
    found, longest = distances(mask, bits), 2**bits
    assert found.min() >= 1
    assert found.max() <= longest
    places = np.cumsum(found) - 1
    assert set(np.flatnonzero(mask)) <= set(places.tolist())
    fillers = set(places.tolist()) - set(np.flatnonzero(mask))
    assert len(fillers) == len(found) - mask.sum()
    assert all((np.diff(np.append(-1, places)) == longest)[[p in fillers for p in places.tolist()]])


@pytest.mark.parametrize(("bits", "published"), [(2, 0.1188), (3, 0.03744), (4, 0.01154)])
def test_few_bits_of_normal_numbers_lose_as_little_as_the_best_even_steps(bits, published):
    """Max's table II gives the mean squared error."""
    vectors = np.random.default_rng(0).standard_normal((400, 2000)).astype(np.float32)
    rounded, num_bytes = few_bits(vectors, bits)
    assert len(np.unique(rounded[0])) == 2**bits
    assert np.square(rounded - vectors).mean() / np.square(vectors).mean() == pytest.approx(
        published, rel=0.01
    )
    assert num_bytes == 400 * (2000 * bits // 8 + 4)
