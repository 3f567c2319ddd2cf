"""Pruned weights: which stay, what they become, and where they are."""

import numpy as np
import pytest

from labs.compression.storage import distances, largest, nearest, share_values, sizes
from labs.compression.vectors import few_bits


@pytest.fixture
def values():
    return np.random.default_rng(0).standard_normal(3000).astype(np.float32)


def test_the_largest_weights_stay(values):
    mask = largest(values, 0.1)
    assert mask.sum() == 300
    assert np.abs(values[mask]).min() >= np.abs(values[~mask]).max()


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


def test_shared_values_are_centres_of_what_they_replace(values):
    mask = largest(values, 0.5)
    shared = share_values(values, mask, 4)
    out = shared.values()
    assert len(np.unique(out[mask])) <= 16
    assert not out[~mask].any()
    plain = np.linspace(values[mask].min(), values[mask].max(), 16).astype(np.float64)
    unmoved = plain[nearest(values[mask].astype(np.float64), plain)]
    assert ((out[mask] - values[mask]) ** 2).sum() < ((unmoved - values[mask]) ** 2).sum()


def test_every_rung_is_smaller(values):
    found = sizes(share_values(values, largest(values, 0.2), 4), 4)
    assert found.dense > found.pruned > found.shared > found.coded > 0
    whole = sizes(share_values(values, np.ones(3000, bool), 4), 4)
    assert whole.dense == whole.pruned == 12_000
    assert whole.shared == 1500 + 64


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
