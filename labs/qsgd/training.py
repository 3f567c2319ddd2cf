"""Training by several workers that exchange quantized gradients, with and without error feedback."""

from typing import Literal

import numpy as np

from labs.classifier import Examples, Floats, gradient
from labs.qsgd.quantization import quantize
from widenet.randomness import stream

BATCH_SIZE = 16
Way = Literal["exact", "unbiased", "error feedback"]


def train(
    start: Floats, data: Examples, way: Way, num_levels: int, steps: int, rate: float, workers: int = 4
) -> Floats:
    """Return the weights after some steps with the mean of all workers' gradients.

    Args:
        start: Initial weights.
        data: The training examples.
        way: "exact" sends gradients as they are; "unbiased" rounds at random; "error feedback" rounds to the
            nearest level, and adds what was lost to the next gradient (Seide et al., Interspeech 2014).
        num_levels: Levels for each sign.
        steps: Number of steps.
        rate: Learning rate.
        workers: Number of workers.
    """
    weights, lost = start.copy(), np.zeros((workers, len(start)))
    for step in range(steps):
        total = np.zeros_like(start)
        for worker in range(workers):
            first = (step * workers + worker) * BATCH_SIZE
            chosen = np.arange(first, first + BATCH_SIZE) % len(data.labels)
            found = gradient(weights, Examples(data.inputs[chosen], data.labels[chosen]))
            if way == "unbiased":
                found = quantize(found, num_levels, stream(0, "labs/qsgd", step, worker)).values()
            elif way == "error feedback":
                wanted = found + lost[worker]
                found = nearest(wanted, num_levels)
                lost[worker] = wanted - found
            total += found
        weights -= rate / workers * total
    return weights


def nearest(vector: Floats, num_levels: int) -> Floats:
    """Return a vector with every number at the nearest level between minus and plus the largest magnitude."""
    largest = np.abs(vector).max()
    return np.rint(vector / largest * num_levels) * (largest / num_levels) if largest > 0 else vector
