"""The simulated server: who waits for whom, and what that does to the weights."""

import numpy as np

from labs.classifier import Examples, examples, first_weights, gradient
from labs.staleness.server import BATCH_SIZE, synchronous

DATA, START = examples(200), first_weights(0)


def test_synchronous_workers_take_the_step_of_their_batches_together():
    together = synchronous(START, DATA, 4, 4, 0.1)
    numbers = np.arange(4 * BATCH_SIZE) % 200
    step = 0.1 * gradient(START, Examples(DATA.inputs[numbers], DATA.labels[numbers]))
    np.testing.assert_allclose(together.weights, START - step, atol=1e-12)
