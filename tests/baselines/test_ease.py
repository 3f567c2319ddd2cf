"""EASE against the closed form of its paper in dense NumPy."""

import numpy as np
import pytest

from tests.baselines.conftest import HISTORY, WIDTH
from tests.mistakes import mistake
from widenet.baselines import methods as module
from widenet.baselines.methods import ease
from widenet.errors import CapacityError
from widenet.sparse import SparseBatch


@pytest.mark.parametrize("l2", [0.5, 500.0])
@pytest.mark.parametrize("together", [7, 256])
def test_lists_are_those_of_the_dense_closed_form(l2, together, matrix, monkeypatch):
    monkeypatch.setattr(module, "_ROWS_TOGETHER", together)
    inverse = np.linalg.inv(matrix.T @ matrix + l2 * np.eye(WIDTH))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)
    scores = np.where(matrix > 0, -np.inf, matrix @ weights)
    history = SparseBatch.from_lists(HISTORY)
    found = ease(history, WIDTH, l2)(history, history, 6)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :6]
    by_list = np.take_along_axis(scores, found, axis=1)
    assert (found >= 0).all()
    assert by_list == pytest.approx(np.take_along_axis(scores, expected, axis=1), rel=1e-9)
    assert (found == expected).mean() > 0.95  # scores may round differently


def test_lists_end_when_everything_is_known():
    history = SparseBatch.from_lists([[0, 1, 2], [0]])
    found = ease(history, 3)(history, history, 2)
    assert found[0].tolist() == [-1, -1]
    assert set(found[1]) == {1, 2}


def test_a_matrix_that_is_too_large_is_refused_with_its_size():
    history = SparseBatch.from_lists([[0]])
    with mistake(CapacityError):
        ease(history, 100_000)
