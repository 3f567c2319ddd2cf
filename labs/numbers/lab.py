"""Trains a network for digits in four arithmetics, and compares the errors."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks.results import Table
from labs.mnist import Digits, digits
from labs.numbers.arithmetic import LogNumbers
from labs.numbers.networks import FloatNetwork, Learner, LogNetwork
from labs.numbers.stored import compared
from widenet.randomness import stream

NUMBERS = LogNumbers(fraction_bits=5)
ARITHMETICS = ("float32", "logarithmic products", "logarithmic everywhere", "everywhere, Kahan's sums")
PUBLISHED = (2.14, 2.12, 3.62, 2.29)


@dataclass(frozen=True)
class Course:
    """How much is learned.

    Attributes:
        pictures: Training pictures.
        epochs: Number of epochs.
        batch_size: Pictures of a step.
        rate: Learning rate.
    """

    pictures: int = 60_000
    epochs: int = 6
    batch_size: int = 32
    rate: float = 0.1


FULL = Course()
SMALL = Course(pictures=3_000, epochs=3)


def run(small: bool) -> list[Table]:
    """Return the tables of this lab: numbers that weights are stored in, and logarithmic numbers."""
    return [compared(small), logarithmic(small)]


def logarithmic(small: bool) -> Table:
    """Return the table of errors on digits."""
    seeds = range(1 if small else 3)
    course = SMALL if small else FULL
    digits("t10k", 1)
    places = [(arithmetic, seed) for arithmetic in range(len(ARITHMETICS)) for seed in seeds]
    if small:
        errors = [error(*place, course) for place in places]
    else:
        with two_processes() as pool:
            errors = list(pool.map(error, *zip(*places, strict=True), [course] * len(places)))
    by_arithmetic = np.array(errors).reshape(len(ARITHMETICS), len(seeds))
    title = (
        f"Errors on MNIST in percent, {course.pictures:,} pictures, {course.epochs} epochs,"
        f" learning rate {course.rate}, {NUMBERS.fraction_bits} bits after the point"
    )
    table = Table(title, ["arithmetic", *(f"seed {seed}" for seed in seeds), "mean", "published"])
    for name, row, published in zip(ARITHMETICS, by_arithmetic, PUBLISHED, strict=True):
        cells = [f"{each:.2f}" for each in (*row, row.mean(), published)]
        table.rows.append([name, *cells])
    means = by_arithmetic.mean(axis=1)
    lost, recovered = means[2] - means[0], means[2] - means[3]
    table.notes.append(
        f"Against float32, products alone change the mean by {means[1] - means[0]:+.2f} points, everywhere by"
        f" {lost:+.2f}. Kahan's sums recover {recovered:.2f} points.\n"
    )
    return table


def two_processes() -> ProcessPoolExecutor:
    """Return a pool of two processes."""
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def network(arithmetic: int, seed: int) -> Learner:
    """Return an untrained network in one of ARITHMETICS."""
    if arithmetic < 2:
        return FloatNetwork(seed, NUMBERS if arithmetic else None)
    return LogNetwork(seed, NUMBERS, kahan=arithmetic == 3)


def error(arithmetic: int, seed: int, course: Course) -> float:
    """Train in one of ARITHMETICS, and return the share of wrong test pictures, in percent."""
    *_, learner = epochs(arithmetic, seed, course)
    return wrong(learner, digits("t10k", 10_000 if course.pictures > 10_000 else 2_000))


def epochs(arithmetic: int, seed: int, course: Course) -> Iterator[Learner]:
    """Train in one of ARITHMETICS, and yield the network after every epoch."""
    learner, train = network(arithmetic, seed), digits("train", course.pictures)
    for epoch in range(course.epochs):
        order = stream(seed, "labs/numbers/order", epoch).permutation(len(train))
        for start in range(0, len(train), course.batch_size):
            batch = order[start : start + course.batch_size]
            learner.learn(train.pixels[batch], train.labels[batch], course.rate)
        yield learner


def wrong(learner: Learner, test: Digits) -> float:
    """Return the share of wrong answers, in percent."""
    guesses = [
        learner.logits(test.pixels[start : start + 500]).argmax(axis=1) for start in range(0, len(test), 500)
    ]
    return float(100 * (np.concatenate(guesses) != test.labels).mean())
