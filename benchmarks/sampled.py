"""Compares sampled outputs with full ones: ranking metrics on Gowalla, and a step of 1,000,000 units."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import Table
from benchmarks.synthetic import write_histories
from widenet import Model, ingest, train

UNITS, EPOCHS = 128, 5
"""On Gowalla: fewer hidden units and epochs than the preset's, for the time."""

WIDTH, HIDDEN, BATCH, EXAMPLES, TARGETS = 1_000_000, 128, 256, 8192, 30
SAMPLES: dict[str, dict[str, Any] | None] = {
    "all units": None,
    **{
        f"{kind}, {units:,}": {"kind": kind, "units": units}
        for units in (1_000, 10_000)
        for kind in ("uniform", "popularity")
    },
}


def run() -> None:
    """Print a table of rankings and one of steps."""
    with workplace() as folder:
        ingest(
            [DATA / "gowalla" / "train.txt"],
            folder / "data",
            heldout=DATA / "gowalla" / "test.txt",
            format="adjacency",
        )
        print(
            f"Gowalla, published split, all items ranked, training items excluded; the preset with {UNITS}"
            f" units, {EPOCHS} epochs\n"
        )
        print("| trained on | NDCG@10 | NDCG@20 | seconds an epoch |\n|---|---|---|---|")
        (network, training), *_ = presets("gowalla").values()
        for number, (name, sample) in enumerate(SAMPLES.items()):
            documents = _network(network, sample), {**json.loads(training.read_text()), "epochs": EPOCHS}
            model: Model = train(*documents, folder / "data", folder / str(number))
            metrics = model.evaluate(folder / "data", ks=(10, 20))
            seconds = _seconds(folder / str(number))
            print(
                f"| {name} | {metrics['ndcg@10']:.4f} | {metrics['ndcg@20']:.4f} | {seconds:.1f} |",
                flush=True,
            )
    with workplace() as folder:
        write_histories(folder, WIDTH, EXAMPLES, TARGETS)
        programs = [
            Program(
                name,
                "benchmarks.sampled:steps",
                {"folder": str(folder), "sample": sample},
                ["widenet", "torch"],
            )
            for name, sample in SAMPLES.items()
        ]
        print(f"\n{_table(measure(programs, rounds=3, turn_seconds=2.0))}")


def _network(network: Path, sample: dict[str, Any] | None) -> dict[str, Any]:
    """The preset's with fewer hidden units, its output sampled."""
    found: dict[str, Any] = json.loads(network.read_text())
    history, taste, output = found["layers"]
    return {**found, "layers": [history, {**taste, "units": UNITS}, {**output, "sample": sample}]}


def _seconds(run: Path) -> float:
    """Seconds of an epoch in the mean."""
    seconds = [float(json.loads(line)["seconds"]) for line in (run / "log.jsonl").read_text().splitlines()]
    return sum(seconds) / len(seconds)


def _table(found: list[Measured]) -> Table:
    title = (
        f"{WIDTH:,} x {HIDDEN} x {WIDTH:,}, softmax, adagrad, batch {BATCH}, {TARGETS} targets an example,"
        f" {THREADS} threads"
    )
    table = Table(title, ["trained on", "time / that of all units", "ms a step", "peak GB"])
    for measured in found:
        table.add(measured, found[0], f"{measured.facts.get('peak_bytes', 0) / 1e9:.2f}")
    return table


def steps(folder: str, sample: dict[str, Any] | None) -> Callable[[int], dict[str, Any]]:
    """Steps of a network over a dataset, its output sampled."""
    import torch

    from benchmarks.steps.widenet_steps import steps_of
    from widenet.parallel.exchange import one_thread_an_operation
    from widenet.parallel.group import exchange_for
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    layers = [
        {"name": "history", "kind": "input", "field": "items", "scale": "rsqrt"},
        {"name": "taste", "units": HIDDEN, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items", "sample": sample},
    ]
    training = TrainingSpec.of({"epochs": 10_000, "batch_size": BATCH, "optimizer": "adagrad"})
    exchange = exchange_for(training.shards, torch.device("cpu"))
    return steps_of(folder, NetworkSpec.of({"layers": layers}), training, exchange, one_thread_an_operation)
