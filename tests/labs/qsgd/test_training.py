"""Training with quantized gradients."""

import numpy as np

from labs.classifier import examples, first_weights, loss
from labs.qsgd.training import nearest, train

DATA, START = examples(500), first_weights(0)


def test_many_levels_train_as_exact_gradients_do():
    exact = loss(train(START, DATA, "exact", 0, 60, 0.4), DATA)
    for way in ("unbiased", "error feedback"):
        assert abs(loss(train(START, DATA, way, 4000, 60, 0.4), DATA) - exact) < 0.01


def test_error_feedback_loses_nothing_over_time():
    """The sum of what was sent differs from the sum of the gradients by what one step may lose."""
    vector, lost, sent = np.array([1.0, 0.3, -0.2]), np.zeros(3), np.zeros(3)
    for _ in range(100):
        found = nearest(vector + lost, 1)
        lost, sent = vector + lost - found, sent + found
    assert np.abs(sent - 100 * vector).max() < 2
    assert np.abs(100 * nearest(vector, 1) - 100 * vector).max() > 20
