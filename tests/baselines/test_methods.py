"""The baselines against closed forms, brute force and other libraries."""

import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear
from scipy.sparse import csr_matrix

import widenet
from tests.baselines.conftest import HISTORY, WIDTH
from tests.mistakes import mistake
from widenet.baselines import measure
from widenet.baselines import methods as module
from widenet.baselines.evaluated_lists import best_of_dense
from widenet.baselines.methods import ease, item_knn, nearest, slim, successors
from widenet.errors import CapacityError, OptionError
from widenet.sparse import SparseBatch


def test_lists_are_those_of_implicit(monkeypatch):
    pytest.importorskip("implicit", reason="implicit is in the extra `benchmark`", exc_type=ImportError)
    from implicit.cpu.als import AlternatingLeastSquares

    monkeypatch.setattr(module, "num_factors", lambda *_: 4)
    history = SparseBatch.from_lists(HISTORY)
    found = module.als(history, WIDTH)(history, history, 5)
    matrix = csr_matrix(
        (np.ones(history.num_entries, np.float32), history.indices.numpy(), history.indptr.numpy()),
        shape=(len(HISTORY), WIDTH),
    )
    model = AlternatingLeastSquares(factors=4, iterations=module.ITERATIONS, num_threads=1, random_state=0)
    model.fit(matrix, show_progress=False)
    items, _ = model.recommend(np.arange(len(HISTORY)), matrix, N=5, recalculate_user=True)
    assert (found == items).mean() > 0.95  # scores may round differently


def test_without_implicit_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with mistake(OptionError):
        module.als(SparseBatch.from_lists([[0]]), 1)


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


def test_a_matrix_that_is_too_large_is_refused_with_its_size():
    history = SparseBatch.from_lists([[0]])
    with mistake(CapacityError):
        ease(history, 100_000)


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
@pytest.mark.parametrize("together", [3, 1024])
def test_lists_are_those_of_brute_force(num_neighbours, k, together, matrix, monkeypatch):
    monkeypatch.setattr("widenet.baselines.methods._ITEMS_TOGETHER", together)
    history = SparseBatch.from_lists(HISTORY)
    found = item_knn(history, WIDTH, num_neighbours)(history, history, k)
    np.testing.assert_array_equal(found, by_brute_force(matrix, num_neighbours, k))


def test_lists_end_without_history_and_where_everything_is_known():
    history, nothing = SparseBatch.from_lists([[0, 1], [], [1]]), SparseBatch.from_lists([[], []])
    assert item_knn(history, 3)(history, history, 2).tolist() == [[-1, -1], [-1, -1], [0, -1]]
    assert item_knn(nothing, 3)(nothing, nothing, 2).tolist() == [[-1, -1], [-1, -1]]
    everything = SparseBatch.from_lists([[0, 1, 2], [0]])
    found = ease(everything, 3)(everything, everything, 2)
    assert (found[0].tolist(), set(found[1])) == ([-1, -1], {1, 2})


def test_of_equal_scores_the_lower_item_comes_first_and_what_is_known_never():
    generator = np.random.default_rng(3)
    scores = generator.integers(-1, 3, size=(50, 400)).astype(np.float32)
    known = [sorted(generator.choice(400, size=20, replace=False).tolist()) for _ in range(49)] + [
        [*range(396)]
    ]
    expected = []
    for row, own in zip(scores, known, strict=True):
        best = sorted(set(range(400)) - set(own), key=lambda item, row=row: (-row[item], item))[:30]
        expected.append(best + [-1] * (30 - len(best)))
    found = best_of_dense(torch.from_numpy(scores), SparseBatch.from_lists(known), 30)
    assert found.tolist() == expected


HISTORIES = SparseBatch.from_lists(HISTORY)


def regressed(matrix, l2, num_neighbours):
    """The weights, by the least squares problem whose solution they are, float64 [L, L]."""
    near = nearest(HISTORIES, WIDTH, num_neighbours)
    weights = np.zeros((WIDTH, WIDTH))
    for item in range(WIDTH):
        neighbours = near.indices[near.indptr[item] : near.indptr[item + 1]]
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


def test_too_many_pairs_are_refused(monkeypatch):
    history = SparseBatch.from_lists([[0, 1, 2], [1]])
    monkeypatch.setattr(module, "MOST_PAIRS", 9)
    slim(history, 3)
    with mistake(CapacityError):
        slim(SparseBatch.from_lists([[0, 1, 2], [1]]), 100)


def test_lists_by_brute_force():
    random = np.random.default_rng(4)
    trained = [random.integers(30, size=random.integers(0, 12)).tolist() for _ in range(200)]
    seen = [random.integers(30, size=random.integers(0, 9)).tolist() for _ in range(60)]
    counts = Counter(item for row in trained for item in row)
    follows = Counter(pair for row in trained for pair in pairwise(row))
    expected = []
    for row in seen:
        newest = row[-1] if row else None
        best = sorted(
            set(range(30)) - set(row),
            key=lambda item, newest=newest: (
                -follows[newest, item],
                -counts[item] * (not follows[newest, item]),
                item,
            ),
        )
        expected.append(best[:10])
    batch = SparseBatch.from_lists(seen)
    assert successors(SparseBatch.from_lists(trained), 30)(batch, batch, 10).tolist() == expected


def test_they_are_measured_for_a_sequence_and_read_the_newest_item_before_the_part(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "find_spec", lambda _: None)
    rows = [[0, 1], [0, 1], [2], [5], [5], [5]]
    validation, heldout = [[3], [4], [0], [], [], []], [[4], [3], [1], [], [], []]
    along, alike = (
        widenet.dataset_from_lists(
            tmp_path / str(is_sequence),
            rows,
            validation=validation,
            heldout=heldout,
            width=6,
            sequence=is_sequence,
        )
        for is_sequence in (True, False)
    )
    assert "successors" not in measure.measured(alike, "items", "heldout", [1])
    found = measure.measured(along, "items", "heldout", [1])
    assert list(found) == ["popularity", "successors", "item-kNN", "SLIM", "EASE"]
    # After 3 and 4 nothing has come, and 5 is most popular. After 0, of the validation part, comes 1.
    assert found["successors"]["recall@1"] == 1 / 3
    assert found["popularity"]["recall@1"] == 0
