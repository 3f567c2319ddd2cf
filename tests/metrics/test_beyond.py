"""Metrics beyond accuracy against their definitions over every pair of lists."""

import math
from itertools import combinations

import numpy as np
import pytest

from widenet.metrics.further import BeyondAccuracy

WIDTH = 12
POPULARITY = np.array([9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 0, 0], dtype=np.int64)
LISTS = np.stack([np.random.default_rng(user).permutation(WIDTH)[:5] for user in range(9)])


def measured(lists, block=100, ks=(2, 5)):
    metrics = BeyondAccuracy(ks, POPULARITY)
    for start in range(0, len(lists), block):
        part = lists[start : start + block]
        metrics.add(part, np.arange(len(part) + 1), np.zeros(len(part), dtype=np.int64))
    return metrics.result()


@pytest.mark.parametrize("k", [2, 5])
def test_each_is_what_its_definition_says(k):
    found = measured(LISTS)
    lists = [set(items[:k].tolist()) for items in LISTS]
    shared = [len(first & second) / k for first, second in combinations(lists, 2)]
    assert found[f"diversity@{k}"] == pytest.approx(1 - sum(shared) / len(shared), abs=1e-12)
    bits = [-math.log2(max(1, POPULARITY[item]) / 35) for items in lists for item in items]
    assert found[f"novelty@{k}"] == pytest.approx(sum(bits) / len(bits), abs=1e-6)
    counts = [sum(item in items for items in lists) for item in range(WIDTH)]
    apart = sum(abs(a - b) for a in counts for b in counts)
    assert found[f"gini@{k}"] == pytest.approx(apart / (2 * WIDTH * sum(counts)), abs=1e-12)


def test_extremes():
    same = measured(np.tile(np.arange(5), (4, 1)))
    assert (same["diversity@5"], same["gini@5"]) == (0.0, pytest.approx(1 - 5 / WIDTH))
    even = measured(np.arange(WIDTH)[:, None], ks=(1,))
    assert (even["diversity@1"], even["gini@1"]) == (1.0, 0.0)
    assert measured(np.full((3, 5), -1))["gini@5"] == 0.0
    assert measured(LISTS[:1])["diversity@5"] == 0.0


def test_blocks_and_order_change_no_bit():
    assert measured(LISTS[::-1], block=2) == measured(LISTS)
