"""The network in logarithmic numbers learns as the one in float32 does, if there are enough bits."""

import numpy as np
import pytest

from labs.numbers.arithmetic import LogNumbers
from labs.numbers.networks import FloatNetwork, LogNetwork


@pytest.fixture
def batches():
    draw = np.random.default_rng(3)
    return [
        (draw.random((8, 784), np.float32) * (draw.random((8, 784)) < 0.2), draw.integers(0, 10, 8))
        for _ in range(3)
    ]


def logits_after(network, batches):
    for pixels, labels in batches:
        network.learn(pixels, labels, 0.1)
    return network.logits(batches[0][0])


@pytest.mark.parametrize("kahan", [False, True])
def test_logarithmic_steps_are_those_of_floats(batches, kahan):
    exact = logits_after(FloatNetwork(0), batches)
    fine = logits_after(LogNetwork(0, LogNumbers(12), kahan), batches)
    coarse = logits_after(LogNetwork(0, LogNumbers(5), kahan), batches)
    assert np.abs(fine - exact).max() < 0.01
    assert 0.01 < np.abs(coarse - exact).max() < 1
