"""Averaged replicas: when they are one network, and what they share."""

import numpy as np

from labs.averaging.replicas import train
from labs.classifier import examples, first_weights, loss

DATA, START = examples(128), first_weights(0)


def test_averaging_after_every_step_is_one_network_with_a_larger_batch():
    """The mean of replicas that begin equal is the step of the mean gradient, also with momentum."""
    together, meetings = train(START, DATA, 2, 1, 16, 2, 0.05)
    alone, none = train(START, DATA, 1, 1, 32, 2, 0.05)
    assert (meetings, none) == (2 * 128 // 32, 0)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)
    assert loss(together, DATA) < loss(START, DATA)
