"""The tables of idle steps are their sums."""

import numpy as np
import pytest

from widenet.training.optimizers import path_sums, shrinkage


def test_a_path_sum_is_the_distance_that_a_velocity_still_covers():
    rates = np.array([0.0, 0.4, 0.3, 0.03, 0.1])
    wanted = [sum(rates[n + j] * 0.5**j for j in range(1, 5 - n)) for n in range(5)]
    assert path_sums(0.5).of(rates).tolist() == pytest.approx(wanted, rel=1e-15)


def test_shrinkage_is_the_logarithm_of_the_product_of_all_factors():
    rates = np.array([0.0, 0.4, 0.3, 0.03, 0.1])
    wanted = np.log([np.prod(1 - 0.2 * rates[1 : n + 1]) for n in range(5)])
    assert shrinkage(0.2).of(rates).tolist() == pytest.approx(wanted.tolist(), rel=1e-14)
