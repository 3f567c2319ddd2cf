"""Comparisons of evaluations, intervals and p-values: paired by user, against SciPy, in every order."""

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.errors import FitError
from widenet.metrics import resampling
from widenet.metrics.comparison import compared
from widenet.metrics.ranking import RankingMetrics
from widenet.metrics.resampling import intervals, p_values
from widenet.randomness import stream

WIDTH = 30


def evaluated(seed, ks=(1, 5), users=40, backwards=False):
    """Metrics of random lists; the true items are the same for every seed."""
    truth = np.random.default_rng(0).integers(0, WIDTH, size=(users, 1))
    top = np.stack([np.random.default_rng([seed, user]).permutation(WIDTH)[:5] for user in range(users)])
    metrics = RankingMetrics(ks, np.ones(WIDTH, dtype=np.int64))
    order = np.arange(users)[::-1] if backwards else np.arange(users)
    for start in range(0, users, 7):
        rows = order[start : start + 7]
        metrics.add(top[rows], np.arange(len(rows) + 1), truth[rows].ravel(), rows)
    return metrics.result()


def test_differences_are_paired_by_user():
    first, second = evaluated(1), evaluated(2)
    found = compared(first, second, 0.9)
    assert (found.level, found.num_examples) == (0.9, 40)
    assert list(found.metrics) == list(first.users.names)
    differences = second.users.values.astype(np.float64) - first.users.values
    column = first.users.names.index("ndcg@5")
    ndcg = found.metrics["ndcg@5"]
    assert (ndcg.first, ndcg.second) == (first["ndcg@5"], second["ndcg@5"])
    assert ndcg.difference == pytest.approx(differences[:, column].mean(), abs=1e-7)
    assert (ndcg.lower, ndcg.upper) == tuple(bound[column] for bound in intervals(differences, 0.9))
    assert ndcg.p_value == p_values(differences)[column]
    assert ndcg.lower < ndcg.difference < ndcg.upper


def test_the_order_of_users_changes_no_bit():
    other = evaluated(2)
    assert compared(evaluated(1), other, 0.95) == compared(evaluated(1, backwards=True), other, 0.95)


def test_evaluations_that_cannot_be_paired_are_refused():
    with mistake(FitError):
        compared(evaluated(1), evaluated(2, users=39), 0.95)
    with mistake(FitError):
        compared(evaluated(1), evaluated(2, ks=(2,)), 0.95)


scipy_stats = pytest.importorskip("scipy.stats")


def values(num_users, num_metrics=3, seed=1):
    return np.random.default_rng(seed).random((num_users, num_metrics)).astype(np.float32)


def test_scipy_enumerates_the_same_signs():
    differences = values(9) - values(9, seed=2) + 0.2
    tested = scipy_stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, axis=0
    )
    assert resampling.p_values(differences) == pytest.approx(tested.pvalue, abs=1e-12)


def test_of_many_users_signs_are_drawn_and_scipy_agrees_as_far_as_draws_can():
    differences = (values(200) - values(200, seed=2)).astype(np.float64)
    differences += np.array([0.0, 0.03, 0.2]) - differences.mean(axis=0) + [0.01, 0, 0]
    tested = scipy_stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=4000, axis=0, rng=3
    )
    found = resampling.p_values(differences)
    assert found == pytest.approx(tested.pvalue, abs=0.04)  # four standard errors
    assert found[2] == 1 / (resampling.NUM_RESAMPLES + 1)


def test_intervals_are_percentiles_of_the_means_of_resampled_users():
    found = values(150)
    lower, upper = resampling.intervals(found, 0.9)
    means = []
    for resample in range(resampling.NUM_RESAMPLES):
        drawn = stream(0, "bootstrap", resample).integers(0, 150, size=150)
        means.append(found[drawn].astype(np.float64).mean(axis=0))
    assert lower == pytest.approx(np.percentile(means, 5, axis=0), abs=1e-8)
    assert upper == pytest.approx(np.percentile(means, 95, axis=0), abs=1e-8)


def test_the_bits_do_not_depend_on_blocks(monkeypatch):
    found = values(300)
    whole = resampling.intervals(found, 0.95), resampling.p_values(found - 0.5)
    monkeypatch.setattr(resampling, "_USERS_A_BLOCK", 7)
    monkeypatch.setattr(resampling, "_DRAWS_A_BLOCK", 1000)
    again = resampling.intervals(found, 0.95), resampling.p_values(found - 0.5)
    np.testing.assert_array_equal(whole[0], again[0])
    np.testing.assert_array_equal(whole[1], again[1])
