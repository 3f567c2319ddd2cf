"""Compares courses of the lab on training pictures set aside: `python -m labs.numbers.courses`."""

import os
from collections.abc import Sequence
from itertools import product

from benchmarks.results import Table
from labs.mnist import Digits, digits
from labs.numbers.lab import ARITHMETICS, FULL, Course, epochs, two_processes, wrong

TRAINED = 50_000
"""Training pictures to learn from; the others of the 60,000 are set aside."""

RATES = (0.05, 0.07, 0.08, 0.1)
COMPARED = (0, 2)
"""Places in ARITHMETICS."""
EPOCHS = (6, 10)


def compared() -> Table:
    """Return the errors of some arithmetics after some epochs, by learning rate, with one seed."""
    with two_processes() as pool:
        found = list(pool.map(errors, *zip(*product(COMPARED, RATES), strict=True)))
    table = Table(
        f"Errors in percent on {len(_set_aside()):,} training pictures set aside, one seed",
        ["learning rate", "epochs", *(ARITHMETICS[arithmetic] for arithmetic in COMPARED)],
    )
    for place, rate in enumerate(RATES):
        for epoch, *of_arithmetics in zip(EPOCHS, *found[place :: len(RATES)], strict=True):
            table.rows.append([f"{rate}", f"{epoch}", *(f"{each:.2f}" for each in of_arithmetics)])
    return table


def errors(arithmetic: int, rate: float) -> Sequence[float]:
    """Return the errors after EPOCHS of a training."""
    course = Course(pictures=TRAINED, epochs=max(EPOCHS), batch_size=FULL.batch_size, rate=rate)
    networks = enumerate(epochs(arithmetic, 0, course), start=1)
    return [wrong(learner, _set_aside()) for epoch, learner in networks if epoch in EPOCHS]


def _set_aside() -> Digits:
    train = digits("train")
    return Digits(train.pixels[TRAINED:], train.labels[TRAINED:])


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # float32 sums depend on it, and one is faster
    print(compared())
