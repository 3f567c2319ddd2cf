"""Intervals and p-values against SciPy, against exact enumeration, and in other orders of addition."""

import numpy as np
import pytest

from widenet.metrics import resampling
from widenet.randomness import stream

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
