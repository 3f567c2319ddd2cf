"""Trains at growing batch sizes by four rules for the learning rate, and small networks beside large ones."""

import numpy as np

from benchmarks.results import Table
from labs.large_batches.network import Course, error, trained
from labs.mnist import Digits, digits

BASE_BATCH, BASE_RATE = 32, 0.02


def run(small: bool) -> list[Table]:
    """Return two tables: of batch sizes, and of ensembles."""
    train, test = digits("train", 4_000 if small else None), digits("t10k", 2_000 if small else None)
    return [_batches(train, test, small), _ensembles(train, test, small)]


def _batches(train: Digits, test: Digits, small: bool) -> Table:
    epochs, seeds = 3 if small else 5, range(1 if small else 2)
    table = Table(
        f"Error in percent after {epochs} epochs, {len(seeds)} seeds; rate {BASE_RATE} for {BASE_BATCH}",
        [
            "batch",
            "steps",
            "the same rate",
            "rate x batch",
            "rate x batch, warm-up",
            "rate x √batch, warm-up",
        ],
    )
    for size in (32, 256, 2048) if small else (32, 128, 512, 2048, 8192, 32_768):
        factor = size / BASE_BATCH
        courses = [
            Course(epochs, size, BASE_RATE),
            Course(epochs, size, BASE_RATE * factor),
            Course(epochs, size, BASE_RATE * factor, warmup_epochs=epochs / 4),
            Course(epochs, size, BASE_RATE * factor**0.5, warmup_epochs=epochs / 4),
        ]
        errors = [
            np.mean([error([trained(train, 128, seed, course)], test) for seed in seeds])
            for course in courses
        ]
        steps = epochs * -(-len(train) // size)
        table.rows.append([f"{size:,}", f"{steps:,}", *(f"{each:.2f}" for each in errors)])
    return table


def _ensembles(train: Digits, test: Digits, small: bool) -> Table:
    course, units = Course(3 if small else 5, 128, 4 * BASE_RATE), 32
    members = [trained(train, units, seed, course) for seed in range(2 if small else 8)]
    table = Table(
        f"Error in percent: the mean of small networks of {units} units, and one network of as many units",
        ["networks", "units of all", "a small network alone", "their mean", "one large network"],
    )
    alone = float(np.mean([error([member], test) for member in members]))
    for count in (1, 2) if small else (1, 2, 4, 8):
        together = error(members[:count], test)
        large = error([trained(train, units * count, 100, course)], test)
        cells = [f"{alone:.2f}", f"{together:.2f}", f"{large:.2f}"]
        table.rows.append([str(count), str(units * count), *cells])
    return table
