"""Item-based neighbours against brute force over the dense matrix."""

import numpy as np
import pytest

from tests.baselines.conftest import HISTORY, WIDTH
from widenet.baselines.methods import item_knn
from widenet.sparse import SparseBatch


def by_brute_force(matrix, num_neighbours, k):
    counts = matrix.sum(axis=0)
    norms = np.sqrt(np.maximum(np.outer(counts, counts), 1))
    cosine = np.rint(matrix.T @ matrix / norms * 2**40)
    np.fill_diagonal(cosine, 0)
    near = np.zeros_like(cosine)
    for item in range(len(cosine)):
        best = sorted(range(len(cosine)), key=lambda other: (-cosine[item, other], other))[:num_neighbours]
        near[item, best] = cosine[item, best]
    scores = matrix @ near
    lists = np.full((len(matrix), k), -1)
    for user, items in enumerate(HISTORY):
        able = [item for item in range(WIDTH) if item not in items and scores[user, item] > 0]
        best = sorted(able, key=lambda item: (-scores[user, item], item))[:k]
        lists[user, : len(best)] = best
    return lists


@pytest.mark.parametrize(("num_neighbours", "k"), [(2, 5), (4, 3), (100, 17)])
@pytest.mark.parametrize("share", [0, 10**9])
def test_lists_are_those_of_brute_force(num_neighbours, k, share, matrix, monkeypatch):
    monkeypatch.setattr("widenet.baselines.methods._DENSE_SHARE", share)
    history = SparseBatch.from_lists(HISTORY)
    found = item_knn(history, WIDTH, num_neighbours)(history, history, k)
    np.testing.assert_array_equal(found, by_brute_force(matrix, num_neighbours, k))


def test_users_without_history_get_empty_lists():
    history = SparseBatch.from_lists([[0, 1], [], [1]])
    assert item_knn(history, 3)(history, history, 2).tolist() == [[-1, -1], [-1, -1], [0, -1]]


def test_an_empty_training_part_gives_empty_lists():
    history = SparseBatch.from_lists([[], []])
    assert item_knn(history, 3)(history, history, 2).tolist() == [[-1, -1], [-1, -1]]
