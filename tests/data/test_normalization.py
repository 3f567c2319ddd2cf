"""Normalized numbers against NumPy, exact in every order."""

import numpy as np
import pytest

from widenet.data.described import Normalization


def test_mean_and_deviation_are_those_of_numpy_without_missing_numbers():
    numbers = np.random.default_rng(0).normal(3, 2, (50, 2))
    numbers[7, 1] = np.nan
    found = Normalization.of(numbers)
    assert found.mean == pytest.approx(np.nanmean(numbers, axis=0), rel=1e-12)
    assert found.deviation == pytest.approx(np.nanstd(numbers, axis=0), rel=1e-12)
    applied = found.applied(numbers)
    assert np.nanmean(applied, axis=0) == pytest.approx(0, abs=1e-12)
    assert np.nanstd(applied, axis=0) == pytest.approx(1, rel=1e-12)
    assert np.isnan(applied[7, 1])


def test_the_order_of_rows_moves_no_bit():
    numbers = np.array([[1e16], [1.0], [-1e16], [1e-3], [3.0]])
    assert Normalization.of(numbers) == Normalization.of(numbers[[3, 2, 4, 0, 1]])
    assert Normalization.of(numbers).mean == (4.001 / 5,)


def test_a_constant_or_absent_column_is_only_moved():
    found = Normalization.of(np.array([[7.0, np.nan], [7.0, np.nan]]))
    assert (found.mean, found.deviation) == ((7.0, 0.0), (1.0, 1.0))


@pytest.mark.parametrize("rows", [3, 109, 1000])
def test_a_constant_column_is_constant_although_its_mean_is_rounded(rows):
    found = Normalization.of(np.array([[19.95, 0.1, -1e38]]).repeat(rows, axis=0))
    assert (found.mean, found.deviation) == ((19.95, 0.1, -1e38), (1.0, 1.0, 1.0))
