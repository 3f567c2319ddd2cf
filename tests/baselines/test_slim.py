"""SLIM against ridge regressions of NumPy and SciPy, and against EASE where all items are neighbours."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from tests.baselines.conftest import HISTORY, WIDTH
from tests.mistakes import mistake
from widenet.baselines import methods as module
from widenet.baselines.methods import ease, nearest, slim
from widenet.errors import CapacityError
from widenet.sparse import SparseBatch

HISTORIES = SparseBatch.from_lists(HISTORY)


def regressed(matrix, l2, num_neighbours):
    """The weights, by the least squares problem whose solution they are, float64 [L, L]."""
    near = nearest(HISTORIES, WIDTH, num_neighbours)
    weights = np.zeros((WIDTH, WIDTH))
    for item in range(WIDTH):
        neighbours = near.others[near.indptr[item] : near.indptr[item + 1]]
        rows = np.concatenate([matrix[:, neighbours], np.sqrt(l2) * np.eye(len(neighbours))])
        target = np.concatenate([matrix[:, item], np.zeros(len(neighbours))])
        weights[neighbours, item] = lsq_linear(rows, target, tol=1e-14).x
    return weights


@pytest.mark.parametrize("l2", [0.5, 50.0])
@pytest.mark.parametrize("num_neighbours", [3, 100])
def test_scores_are_those_of_a_ridge_regression_on_the_neighbours(l2, num_neighbours, matrix):
    scores = matrix @ regressed(matrix, l2, num_neighbours)
    scores[matrix > 0] = -np.inf
    found = slim(HISTORIES, WIDTH, l2, num_neighbours)(HISTORIES, HISTORIES, 5)
    for row, items in enumerate(found):
        best = np.sort(scores[row])[::-1][: (items >= 0).sum()]
        assert scores[row, items[items >= 0]] == pytest.approx(best, abs=1e-9)
        assert (items >= 0).sum() == min(5, (scores[row] > 1e-9).sum())


def test_lists_are_those_of_ease_where_all_items_are_neighbours():
    generator = np.random.default_rng(3)
    history = SparseBatch.from_lists([sorted(generator.permutation(9)[:5].tolist()) for _ in range(40)])
    assert np.diff(nearest(history, 9, 9).indptr).tolist() == [8] * 9
    found = slim(history, 9, 2.0, 9)(history, history, 4)
    expected = ease(history, 9, 2.0)(history, history, 4)
    np.testing.assert_array_equal(np.where(found < 0, expected, found), expected)
    assert (found >= 0).mean() > 0.9


def test_an_item_without_neighbours_gets_no_weight():
    history = SparseBatch.from_lists([[0, 1], [2], [1], []])
    assert slim(history, 4)(history, history, 2).tolist() == [[-1, -1], [-1, -1], [0, -1], [-1, -1]]


def test_too_many_pairs_are_refused(monkeypatch):
    history = SparseBatch.from_lists([[0, 1, 2], [1]])
    monkeypatch.setattr(module, "MOST_PAIRS", 9)
    slim(history, 3)
    with mistake(CapacityError):
        slim(SparseBatch.from_lists([[0, 1, 2], [1]]), 100)
