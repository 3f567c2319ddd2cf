"""A parameter server and its workers as events: who finishes when, and how old each gradient is by then."""

import heapq
from dataclasses import dataclass

import numpy as np

from labs.classifier import Examples, Floats, gradient
from widenet.randomness import stream

BATCH_SIZE = 16
SHAPE = 4.0
"""Shape of the gamma distribution of a gradient's duration; its mean is 1, its deviation 1/2."""


@dataclass(frozen=True)
class Trained:
    """The end of a training.

    Attributes:
        weights: The final weights.
        seconds: Simulated time; a gradient takes 1 in the mean.
        delays: For every gradient, the number of updates between its weights' reading and its own update.
    """

    weights: Floats
    seconds: float
    delays: list[int]


def batch(data: Examples, number: int) -> Examples:
    """Return the examples of gradient `number`: each asks for the next ones, whoever computes it."""
    chosen = np.arange(number * BATCH_SIZE, (number + 1) * BATCH_SIZE) % len(data.labels)
    return Examples(data.inputs[chosen], data.labels[chosen])


def duration(timing: int, number: int) -> float:
    """Return how long gradient `number` takes."""
    return float(stream(timing, "labs/staleness/durations", number).gamma(SHAPE, 1 / SHAPE))


def asynchronous(
    start: Floats, data: Examples, workers: int, gradients: int, rate: float, timing: int = 0
) -> Trained:
    """Train as a server does that applies each gradient when it comes.

    Args:
        start: Initial weights.
        data: The training examples.
        workers: Number of workers; each reads the weights, computes a gradient, sends it, and begins again.
        gradients: Number of gradients to apply.
        rate: Learning rate.
        timing: Seed of the durations alone.
    """
    weights, delays = start.copy(), []
    held = {worker: weights.copy() for worker in range(workers)}
    begun = dict.fromkeys(held, 0)
    events = [(duration(timing, worker), worker, worker) for worker in held]
    heapq.heapify(events)
    now, next_number = 0.0, workers
    with np.errstate(all="ignore"):
        for update in range(gradients):
            now, number, worker = heapq.heappop(events)
            weights -= rate * gradient(held[worker], batch(data, number))
            delays.append(update - begun[worker])
            held[worker], begun[worker] = weights.copy(), update + 1
            heapq.heappush(events, (now + duration(timing, next_number), next_number, worker))
            next_number += 1
    return Trained(weights, now, delays)


def synchronous(
    start: Floats, data: Examples, workers: int, gradients: int, rate: float, timing: int = 0
) -> Trained:
    """Train with the mean of all workers' gradients in every step, which waits for the slowest."""
    weights, now = start.copy(), 0.0
    with np.errstate(all="ignore"):
        for first in range(0, gradients, workers):
            numbers = range(first, min(first + workers, gradients))
            found = [gradient(weights, batch(data, number)) for number in numbers]
            weights -= rate * np.mean(found, axis=0)
            now += max(duration(timing, number) for number in numbers)
    return Trained(weights, now, [0] * gradients)
