"""Comparisons of two evaluations: paired by user, and equal to what the means say."""

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.errors import FitError
from widenet.metrics.comparison import compared
from widenet.metrics.ranking import RankingMetrics
from widenet.metrics.resampling import intervals, p_values

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


def test_a_run_does_not_differ_from_itself():
    found = compared(evaluated(1), evaluated(1), 0.95)
    assert {(each.difference, each.lower, each.upper, each.p_value) for each in found.metrics.values()} == {
        (0.0, 0.0, 0.0, 1.0)
    }


def test_the_order_of_users_changes_no_bit():
    other = evaluated(2)
    assert compared(evaluated(1), other, 0.95) == compared(evaluated(1, backwards=True), other, 0.95)


def test_evaluations_that_cannot_be_paired_are_refused():
    with mistake(FitError):
        compared(evaluated(1), evaluated(2, users=39), 0.95)
    with mistake(FitError):
        compared(evaluated(1), evaluated(2, ks=(2,)), 0.95)
