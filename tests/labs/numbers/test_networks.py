"""The network in logarithmic numbers learns as the one in float32 does, if there are enough bits."""

import numpy as np
import pytest
import torch

from labs.numbers.arithmetic import LogNumbers
from labs.numbers.networks import FloatNetwork, LogNetwork, first_weights


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


def test_float32_takes_the_steps_of_torch(batches):
    weights = [torch.tensor(each, requires_grad=True) for each in first_weights(0)]

    def logits(pixels):
        return torch.relu(torch.tensor(pixels) @ weights[0] + weights[1]) @ weights[2] + weights[3]

    rule = torch.optim.SGD(weights, lr=0.1)
    for pixels, labels in batches:
        rule.zero_grad()
        torch.nn.functional.cross_entropy(logits(pixels), torch.tensor(labels)).backward()
        rule.step()
    found = logits_after(FloatNetwork(0), batches)
    np.testing.assert_allclose(found, logits(batches[0][0]).detach(), atol=2e-5)


@pytest.mark.parametrize("kahan", [False, True])
def test_logarithmic_steps_are_those_of_floats(batches, kahan):
    exact = logits_after(FloatNetwork(0), batches)
    fine = logits_after(LogNetwork(0, LogNumbers(12), kahan), batches)
    coarse = logits_after(LogNetwork(0, LogNumbers(5), kahan), batches)
    assert np.abs(fine - exact).max() < 0.01
    assert 0.01 < np.abs(coarse - exact).max() < 1
