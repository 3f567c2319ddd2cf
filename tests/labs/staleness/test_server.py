"""The simulated server: who waits for whom, and what that does to the weights."""

import numpy as np

from labs.classifier import Examples, examples, first_weights, gradient
from labs.staleness.server import BATCH_SIZE, asynchronous, batch, synchronous

DATA, START = examples(200), first_weights(0)


def test_one_asynchronous_worker_is_gradient_descent():
    weights = START.copy()
    for number in range(20):
        weights -= 0.1 * gradient(weights, batch(DATA, number))
    alone = asynchronous(START, DATA, 1, 20, 0.1)
    assert alone.weights.tobytes() == weights.tobytes()
    assert alone.delays == [0] * 20


def test_synchronous_workers_take_the_step_of_their_batches_together():
    together = synchronous(START, DATA, 4, 4, 0.1)
    numbers = np.arange(4 * BATCH_SIZE) % 200
    step = 0.1 * gradient(START, Examples(DATA.inputs[numbers], DATA.labels[numbers]))
    np.testing.assert_allclose(together.weights, START - step, atol=1e-12)


def test_only_synchronous_weights_do_not_depend_on_the_timing():
    ends = {
        way: [way(START, DATA, 4, 40, 0.1, timing).weights.tobytes() for timing in (0, 1)]
        for way in (asynchronous, synchronous)
    }
    assert ends[synchronous][0] == ends[synchronous][1]
    assert ends[asynchronous][0] != ends[asynchronous][1]
