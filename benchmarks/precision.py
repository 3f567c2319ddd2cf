"""Compares weights in bfloat16 and state in 8 bits with float32: bytes and NDCG on Gowalla, and steps."""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.alternately import THREADS, Program, measure
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import Table, processor, publish

_STORED = {"weight_precision": "bfloat16"}
FORMS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": _STORED,
    "bfloat16, compensated": {**_STORED, "weight_rounding": "compensated"},
    "bfloat16, state in 8 bits": {**_STORED, "state_precision": "float8"},
}
"""Fields of a training document, by the name of the run."""
COLUMNS = [
    "run",
    "MB of a model",
    "of float32",
    "MB of weights and state",
    "of float32",
    "NDCG@20",
    "of float32",
]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--units", type=int, default=64, help="units of Gowalla's vectors")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of a training")
    parser.add_argument("--forms", nargs="*", choices=[*FORMS], default=[*FORMS], help="the runs to make")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every form's steps")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn, at least one step")


@dataclass(frozen=True)
class Found:
    """Figures of a run: bytes of its model's files, planned bytes of weights and state, metric."""

    model_bytes: int
    trained_bytes: int
    gain: float
    fingerprint: str


def run(asked: argparse.Namespace) -> None:
    """Print a row for each run, and a table of the times of a step."""
    from widenet import ingest

    with workplace() as folder:
        data = folder / "dataset"
        ingest([DATA / "gowalla" / "train.txt"], data, heldout=DATA / "gowalla" / "test.txt")
        if asked.forms:
            _print_losses(folder, asked)
        if asked.rounds:
            table = _times(folder, asked)
            print(table, flush=True)
            publish("precision", [table], asked.out)


def _print_losses(folder: Path, asked: argparse.Namespace) -> None:
    print(f"Gowalla, published split, {asked.units} units, {asked.epochs} epochs\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    first, last = None, []
    for form in asked.forms:
        found = _found(folder, form, asked.units, asked.epochs)
        first = first or found
        print(_row(form, found, first), flush=True)
        last.append(f"{form} {found.fingerprint[:16]}")
    print(f"\nFingerprints: {', '.join(last)}.\nProcessor: {processor()}, {THREADS} threads.\n")


def _found(folder: Path, form: str, units: int, epochs: int) -> Found:
    from widenet import train
    from widenet.plan.job import Job
    from widenet.plan.memory import memory
    from widenet.runs.made_of import num_bytes

    network, training = _documents(form, units)
    out = folder / form.replace(", ", "-").replace(" ", "-")
    model = train(network, {**training, "epochs": epochs}, folder / "dataset", out)
    needed = memory(Job.of(model.network.layout))
    gain = model.evaluate(folder / "dataset", ks=(20,))["ndcg@20"]
    return Found(num_bytes(out), needed.weights + needed.state, gain, model.fingerprint())


def _documents(form: str, units: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the preset of Gowalla with other units, and the fields of a form."""
    network, training = (json.loads(path.read_text("utf-8")) for path in presets("gowalla")["best"])
    network["layers"][1]["units"] = units
    return network, {**training, **FORMS[form]}


def _times(folder: Path, asked: argparse.Namespace) -> Table:
    words = {"folder": str(folder), "units": asked.units}
    programs = [
        Program(form, "benchmarks.precision:steps", {**words, "form": form}, ["widenet", "torch"])
        for form in FORMS
    ]
    found = measure(programs, asked.rounds, asked.seconds)
    title = f"A step of the preset of Gowalla with {asked.units} units"
    table = Table(title, ["run", "time / float32's", "ms"])
    for measured in found:
        table.add(measured, found[0])
    return table


def steps(folder: str, units: int, form: str) -> Callable[[int], dict[str, Any]]:
    """Return steps of a training in a form."""
    import torch

    from benchmarks.steps.widenet_steps import steps_of
    from widenet.parallel.group import exchange_for
    from widenet.parallel.threads import one_thread_an_operation
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    network, training = _documents(form, units)
    spec = TrainingSpec.of({**training, "epochs": 10_000})
    exchange = exchange_for(spec.shards, torch.device("cpu"))
    return steps_of(folder, NetworkSpec.of(network), spec, exchange, one_thread_an_operation)


def _row(form: str, found: Found, first: Found) -> str:
    cells = [
        form,
        f"{found.model_bytes / 1e6:.2f}",
        f"{found.model_bytes / first.model_bytes:.4f}",
        f"{found.trained_bytes / 1e6:.2f}",
        f"{found.trained_bytes / first.trained_bytes:.4f}",
        f"{found.gain:.6f}",
        f"{found.gain / first.gain:.5f}",
    ]
    return f"| {' | '.join(cells)} |"
