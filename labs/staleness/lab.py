"""Compares asynchronous with synchronous training: loss against workers, delay and simulated time."""

import hashlib

import numpy as np

from benchmarks.results import Table
from labs.classifier import Examples, Floats, examples, first_weights, loss
from labs.staleness.server import Trained, asynchronous, synchronous

RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def run(small: bool) -> list[Table]:
    """Return the table of losses."""
    data, test = examples(1_000 if small else 20_000), examples(2_000, position=1)
    gradients, start = 256 if small else 3_200, first_weights(0)
    many = (1, 8, 32) if small else (1, 2, 4, 8, 16, 32, 64)
    rates = RATES[1::2] if small else RATES
    alone = {rate: loss(asynchronous(start, data, 1, gradients, rate).weights, test) for rate in rates}
    usual = min(alone, key=lambda rate: alone[rate])
    title = f"Loss after {gradients:,} gradients; {usual} is the best rate of one worker"
    table = Table(
        title,
        [
            "workers",
            "delay: mean, largest",
            f"asynchronous, rate {usual}",
            "asynchronous, best rate",
            "synchronous, best rate",
            "simulated time",
            "two timings agree",
        ],
    )
    for workers in many:
        table.rows.append(_row(start, data, test, workers, gradients, rates, usual))
    table.notes += [
        "Simulated time: asynchronous / synchronous; a gradient takes 1 in the mean.",
        "Two timings: whether trainings that differ in the durations alone end with the same bits,"
        " asynchronous / synchronous.\n",
    ]
    return [table]


def _row(
    start: Floats,
    data: Examples,
    test: Examples,
    workers: int,
    gradients: int,
    rates: tuple[float, ...],
    usual: float,
) -> list[str]:
    arguments = start, data, workers, gradients
    late = {rate: asynchronous(*arguments, rate) for rate in rates}
    together = {
        rate: synchronous(*arguments, rate) for rate in (*rates, *(2 * rates[-1] * n for n in (1, 2)))
    }
    agree = [
        digest(asynchronous(*arguments, usual, timing=1)) == digest(late[usual]),
        digest(synchronous(*arguments, usual, timing=1)) == digest(together[usual]),
    ]
    delays = late[usual].delays
    return [
        str(workers),
        f"{np.mean(delays):.1f}, {max(delays)}",
        _shown(loss(late[usual].weights, test)),
        _best(late, test),
        _best(together, test),
        f"{late[usual].seconds:,.0f} / {together[usual].seconds:,.0f}",
        " / ".join("yes" if same else "no" for same in agree),
    ]


def _best(trained: dict[float, Trained], test: Examples) -> str:
    losses = {rate: loss(each.weights, test) for rate, each in trained.items()}
    rate = min(losses, key=lambda each: losses[each])
    return f"{_shown(losses[rate])} ({rate:g})"


def _shown(number: float) -> str:
    return f"{number:.3f}" if np.isfinite(number) else "diverged"


def digest(trained: Trained) -> str:
    """Return a digest of the weights."""
    return hashlib.sha256(trained.weights.tobytes()).hexdigest()
