"""Averaged replicas: when they are one network, and what they share."""

import numpy as np
import torch

from labs.averaging.replicas import Replica, average, train
from labs.classifier import examples, first_weights, loss

DATA, START = examples(128), first_weights(0)


def test_averaging_after_every_step_is_one_network_with_a_larger_batch():
    """The mean of replicas that begin equal is the step of the mean gradient, also with momentum."""
    together, meetings = train(START, DATA, 2, 1, 16, 2, 0.05)
    alone, none = train(START, DATA, 1, 1, 32, 2, 0.05)
    assert (meetings, none) == (2 * 128 // 32, 0)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-12)
    assert loss(together, DATA) < loss(START, DATA)


def test_replicas_are_equal_after_an_average_with_their_momentum():
    replicas = [Replica(START, 0.05) for _ in range(3)]
    for number, replica in enumerate(replicas):
        replica.step(examples(16, position=number))
    before = [[tensor.clone() for tensor in replica.tensors()] for replica in replicas]
    average(replicas)
    for place, copies in enumerate(zip(*(replica.tensors() for replica in replicas), strict=True)):
        mean = torch.stack([tensors[place] for tensors in before]).mean(dim=0)
        assert all(torch.equal(copy, mean) for copy in copies)
