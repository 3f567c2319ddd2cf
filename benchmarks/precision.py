"""Compares weights in bfloat16 and state in 8 bits with float32: bytes and NDCG on Gowalla."""

import argparse
import json
from dataclasses import dataclass
from typing import Any

from benchmarks.alternately import THREADS
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import processor

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


@dataclass(frozen=True)
class Found:
    """Figures of a run: bytes of its model's files, planned bytes of weights and state, metric."""

    model_bytes: int
    trained_bytes: int
    gain: float
    fingerprint: str


def run(asked: argparse.Namespace) -> None:
    """Print a row for each run."""
    from widenet import ingest

    print(f"Gowalla, published split, {asked.units} units, {asked.epochs} epochs\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    first, last = None, []
    with workplace() as folder:
        ingest([DATA / "gowalla" / "train.txt"], folder / "data", heldout=DATA / "gowalla" / "test.txt")
        for form in asked.forms:
            found = _found(folder, form, asked.units, asked.epochs)
            first = first or found
            print(_row(form, found, first), flush=True)
            last.append(f"{form} {found.fingerprint[:16]}")
    print(f"\nFingerprints: {', '.join(last)}.\nProcessor: {processor()}, {THREADS} threads.\n")


def _found(folder: Any, form: str, units: int, epochs: int) -> Found:
    from widenet import train
    from widenet.plan.job import Job
    from widenet.plan.memory import memory
    from widenet.runs.smaller import num_bytes

    network, training = (json.loads(path.read_text("utf-8")) for path in presets("gowalla")["best"])
    network["layers"][1]["units"] = units
    out = folder / form.replace(", ", "-").replace(" ", "-")
    model = train(network, {**training, "epochs": epochs, **FORMS[form]}, folder / "data", out)
    needed = memory(Job.of(model.network.layout))
    gain = model.evaluate(folder / "data", ks=(20,))["ndcg@20"]
    return Found(num_bytes(out), needed.weights + needed.state, gain, model.fingerprint())


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
