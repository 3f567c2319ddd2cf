"""QSGD's promises: no bias, a bounded variance, and Elias' codes."""

import numpy as np
import pytest

from labs.qsgd.quantization import quantize, variance_bound
from widenet.randomness import stream


@pytest.fixture(scope="module")
def vector():
    return stream(0, "tests/qsgd").standard_normal(500)


@pytest.mark.parametrize("levels", [1, 4, 22])
def test_the_mean_is_unbiased_and_the_variance_bounded(vector, levels):
    draws = [quantize(vector, levels, stream(1, "tests/qsgd", n)).values() for n in range(400)]
    errors = np.array(draws) - vector
    for direction in (vector, np.sign(vector), np.ones_like(vector)):
        projected = errors @ direction
        assert abs(projected.mean()) <= 3 * projected.std(ddof=1) / np.sqrt(len(projected))
    share = (errors**2).sum(axis=1).mean() / (vector**2).sum()
    assert 0 < share <= variance_bound(len(vector), levels)
