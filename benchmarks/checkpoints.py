"""Measures the cost of a background checkpoint: steps that follow one and steps without one, in turns."""

import statistics
import time
from itertools import pairwise

from benchmarks.alternately import THREADS
from benchmarks.places import workplace
from benchmarks.results import machine, quartiles
from benchmarks.synthetic import write_histories
from widenet import train
from widenet.runs import Silence
from widenet.training.run_directory import RunDirectory

WIDTH, HIDDEN, BATCH, EXAMPLES, TARGETS = 27_278, 128, 256, 8192, 30
PAIRS, TURN_STEPS = 8, 10
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": HIDDEN, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {"batch_size": BATCH, "optimizer": "adam", "epochs": 1000}


class Clocks(Silence):
    """Records wall and CPU time after every step, and ends the training after some steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self.seconds, self.processor_seconds = steps, list[float](), list[float]()

    def advance(self, num_examples: int, loss: float) -> None:
        """See `Report.advance`."""
        del num_examples, loss
        self.seconds.append(time.perf_counter())
        self.processor_seconds.append(time.process_time())

    def is_over(self) -> bool:
        """Return whether all steps have been made."""
        return len(self.seconds) >= self.steps


def run() -> None:
    """Print a line for each pair of turns, and their median."""
    with workplace() as folder:
        write_histories(folder, WIDTH, EXAMPLES, TARGETS)
        clocks = Clocks((2 * PAIRS + 3) * TURN_STEPS + 1)
        documents = (
            NETWORK,
            {
                **TRAINING,
                "checkpoints": {"every_epochs": 1000, "every_steps": 2 * TURN_STEPS},
            },
        )
        try:
            train(*documents, folder / "dataset", folder / "run", report=clocks, interrupted=clocks.is_over)
        except KeyboardInterrupt:
            latest = RunDirectory.open(folder / "run").latest()
        assert latest is not None
        _print(clocks, sum(file["bytes"] for file in latest.files.values()))


def _print(clocks: Clocks, checkpoint_bytes: int) -> None:
    """Print pairs of steps after a checkpoint and as many steps without one.

    The first checkpoint is left out, because it allocates its copy.
    """
    print(
        f"\n{WIDTH:,} x {HIDDEN} x {WIDTH:,}, adam, batch {BATCH}: {checkpoint_bytes / 1e6:,.0f} MB of"
        " weights and state"
    )
    print(f"{machine()}, {THREADS} threads; turns of {TURN_STEPS} steps\n")
    print("| a step after a checkpoint | without | processor seconds of the checkpoint |\n|---|---|---|")
    delays, costs = [], []
    for start in range(4 * TURN_STEPS - 1, len(clocks.seconds) - 2 * TURN_STEPS, 2 * TURN_STEPS):
        edges = (start, start + TURN_STEPS, start + 2 * TURN_STEPS)
        after, without = (clocks.seconds[stop] - clocks.seconds[begin] for begin, stop in pairwise(edges))
        work, least = (
            clocks.processor_seconds[stop] - clocks.processor_seconds[begin]
            for begin, stop in pairwise(edges)
        )
        delays.append(after - without)
        costs.append(work - least)
        print(f"| {after / TURN_STEPS:.3f} s | {without / TURN_STEPS:.3f} s | {costs[-1]:.2f} |", flush=True)
    (delay, low, high), cost = quartiles(delays), statistics.median(costs)
    print(
        f"\nA checkpoint delays the training by {delay:.2f} s ({low:.2f} to {high:.2f}): {delay / 60:.1%} of"
        " a minute."
    )
    speed, share = checkpoint_bytes / 1e6 / cost, cost / 60 / THREADS
    print(
        f"It takes {cost:.2f} processor seconds ({speed:,.0f} MB a second): {share:.1%} of a minute of all"
        " processors."
    )
