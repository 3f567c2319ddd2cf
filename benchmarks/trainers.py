"""Times the training of widenet and `implicit` on goodbooks-10k until their rankings reach a quality."""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

from benchmarks.goodbooks import als, prepare
from benchmarks.places import presets, workplace
from benchmarks.results import Table, publish
from widenet import Dataset, train
from widenet.data.together import neighbours
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

Curve = list[tuple[float, float]]
"""Seconds of training so far, and NDCG@20 of the held-out books after them."""

ALS = {"factors": 512, "regularization": 10.0, "alpha": 40.0}
"""Settings that `benchmarks.goodbooks` chose on a validation part."""

SHARES = (0.8, 0.9, 0.95, 0.98, 1.0)
"""Shares of the final NDCG@20 of alternating least squares."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=2, help="trainings of each program")


def run(asked: argparse.Namespace) -> None:
    """Print the training time of each program up to shares of the final NDCG@20 of least squares."""
    names = {"widenet": widenet_curve, "implicit ALS": als_curve}
    found: dict[str, list[Curve]] = {name: [] for name in names}
    with workplace() as folder:
        prepare(folder)
        for number in range(asked.rounds):
            for name, curve in list(names.items())[:: -1 if number % 2 else 1]:
                found[name].append(_alone(curve, folder, number))
    goal = found["implicit ALS"][0][-1][1]
    table = Table(
        f"goodbooks-10k: seconds of training until NDCG@20; ALS ends with {goal:.4f}",
        ["NDCG@20", *names, "ALS / widenet"],
    )
    for share in SHARES:
        ours, theirs = (seconds_until(share * goal, found[name]) for name in names)
        ratio = "-" if ours is None or theirs is None else f"{theirs / ours:.2f}"
        table.rows.append(
            [f"{share * goal:.4f} ({share:.0%})", *(_said(seconds) for seconds in (ours, theirs)), ratio]
        )
    best = (
        f"{name} best NDCG@20 {max(ndcg for _, ndcg in curves[0]):.4f}, {_said(_whole(curves))} s"
        for name, curves in found.items()
    )
    table.notes.append(
        f"Whole trainings: {'; '.join(best)}. NDCG of the first round; seconds are the median of"
        f" {asked.rounds}, without evaluation."
    )
    table.turns = {name: {"curves": curves} for name, curves in found.items()}
    print(table)
    publish("trainers", [table], asked.out)


def widenet_curve(folder: Path, number: int) -> Curve:
    """The preset of examples/goodbooks with neighbours, evaluated after each epoch.

    Counting the neighbours is part of the first epoch's seconds.
    """
    (network, training), dataset = presets("goodbooks")["neighbours"], Dataset.open(folder / "data")
    (term,) = [output.neighbourhood for output in NetworkSpec.of(json.loads(network.read_text())).outputs]
    assert term is not None
    started = perf_counter()
    neighbours(dataset, "items", range(dataset.field("items").width), term.neighbours)
    counting = perf_counter() - started
    evaluated = {"evaluation": {"metric": "ndcg@20", "part": "heldout"}}
    document = TrainingSpec.of({**json.loads(training.read_text("utf-8")), **evaluated})
    out = folder / f"run {number}"
    train(network, document, dataset, out)
    records = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    first, *further = [(record["seconds"], record["ndcg@20"]) for record in records]
    return _summed([(counting + first[0], first[1]), *further])


def als_curve(folder: Path, number: int) -> Curve:
    """Alternating least squares, evaluated after each iteration.

    Its threads are its own: those of BLAS would take their place.
    """
    del number
    return _summed(
        [
            (seconds, metrics["ndcg@20"])
            for seconds, metrics in als(Dataset.open(folder / "data"), "heldout", ALS, every=True)
        ]
    )


def seconds_until(goal: float, curves: Sequence[Curve]) -> float | None:
    """Median over trainings of the seconds until NDCG@20 reaches `goal`; None if one never reaches it."""
    reached = [next((seconds for seconds, ndcg in curve if ndcg >= goal), None) for curve in curves]
    there = [seconds for seconds in reached if seconds is not None]
    return statistics.median(there) if len(there) == len(curves) else None


def _whole(curves: Sequence[Curve]) -> float:
    return statistics.median(curve[-1][0] for curve in curves)


def _summed(pieces: Sequence[tuple[float, float]]) -> Curve:
    """Return the seconds since the start, from the seconds of each piece."""
    return [
        (sum(seconds for seconds, _ in pieces[: number + 1]), ndcg) for number, (_, ndcg) in enumerate(pieces)
    ]


def _alone(curve: Callable[[Path, int], Curve], folder: Path, number: int) -> Curve:
    """Run a training in its own process, so that threads of other programs do not disturb it."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as implicit asks for; torch does not use it
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(curve, folder, number).result()


def _said(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f}"
