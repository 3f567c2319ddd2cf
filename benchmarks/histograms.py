"""Measures the cost of histograms: processor time of epochs with and without them, in turns."""

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.alternately import THREADS
from benchmarks.checkpoints import BATCH, EXAMPLES, HIDDEN, NETWORK, TARGETS, TRAINING, WIDTH
from benchmarks.places import workplace
from benchmarks.results import machine, quartiles
from benchmarks.synthetic import write_histories
from widenet import train
from widenet.runs import Silence

PAIRS, EPOCHS = 5, 4


class Clocks(Silence):
    """Records processor time after every epoch."""

    def __init__(self) -> None:
        self.processor_seconds = list[float]()

    def epoch(self, record: dict[str, Any]) -> None:
        """See `Report.epoch`."""
        del record
        self.processor_seconds.append(time.process_time())


def run() -> None:
    """Print a line for each pair of trainings, and their median."""
    with workplace() as folder:
        write_histories(folder, WIDTH, EXAMPLES, TARGETS)
        print(f"\n{WIDTH:,} x {HIDDEN} x {WIDTH:,}, adam, {EXAMPLES:,} examples, batch {BATCH}")
        print(f"{machine()}, {THREADS} threads\n")
        print("| processor seconds of an epoch with histograms | without |\n|---|---|")
        pairs = []
        for number in range(PAIRS):
            with_them, without = (_epoch(folder, number, records) for records in (True, False))
            pairs.append((with_them, without))
            print(f"| {with_them:.2f} | {without:.2f} |", flush=True)
    cost, low, high = quartiles([with_them - without for with_them, without in pairs])
    share = cost / statistics.median(without for _, without in pairs)
    print(
        f"\nHistograms take {cost:.2f} processor seconds of an epoch ({low:.2f} to {high:.2f}): {share:.1%}."
    )


def _epoch(folder: Path, number: int, records: bool) -> float:
    """Return the processor seconds of an epoch: the median of all but the first."""
    clocks = Clocks()
    training = {**TRAINING, "epochs": EPOCHS, "checkpoints": {"every_epochs": EPOCHS}, "histograms": records}
    train(NETWORK, training, folder / "dataset", folder / f"run-{number}-{records}", report=clocks)
    return statistics.median(stop - start for start, stop in pairwise(clocks.processor_seconds))
