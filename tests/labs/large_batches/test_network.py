"""Training at any batch size, and the mean of several networks."""

import numpy as np
import pytest
import torch

from labs.large_batches.network import Course, error, logits, trained
from labs.mnist import Digits


@pytest.fixture
def pictures():
    draw = np.random.default_rng(0)
    return Digits(draw.random((40, 784), np.float32), draw.integers(0, 10, 40))


def test_a_batch_of_everything_is_one_step_down_the_gradient(pictures):
    start = trained(pictures, 5, 0, Course(0, 40, 0.1))
    twins = [weight.clone().requires_grad_() for weight in start]
    pixels, labels = torch.tensor(pictures.pixels), torch.tensor(pictures.labels)
    torch.nn.functional.cross_entropy(logits(twins, pixels), labels).backward()
    for share, warmup in ((1.0, 0), (0.25, 4)):
        after = trained(pictures, 5, 0, Course(1, 40, 0.1, warmup))
        for old, twin, new in zip(start, twins, after, strict=True):
            torch.testing.assert_close(new, old - share * 0.1 * twin.grad, atol=1e-6, rtol=1e-4)


def test_a_network_agrees_with_itself_and_learns(pictures):
    first, second = (trained(pictures, 60, seed, Course(20, 8, 0.002)) for seed in (0, 1))
    assert error([first], pictures) == error([first, first], pictures) < 50
    assert error([first, second], pictures) <= max(error([first], pictures), error([second], pictures))
