"""Compares the times that `widenet plan --measure` tells with trainings and recommendations that are run."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import Case, million
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import Table, publish
from widenet import Model, dataset_from_lists, ingest
from widenet.plan.numbers import duration

WIDTH, EXAMPLES, HISTORY = 1_000_000, 8192, 30
PICTURES, PIXELS, CLASSES = 384, 3 * 227 * 227, 1000
EVALUATION = {"every_epochs": 1, "part": "heldout"}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="*", help="beginnings of the names of runs to measure")


def run(asked: argparse.Namespace) -> None:
    """Print what was planned and what it took."""
    columns = [
        "run",
        "measuring",
        "training, planned",
        "taken",
        "ratio",
        "recommending, planned",
        "taken",
        "ratio",
    ]
    table = Table("Planned by --measure, and taken", columns)
    with workplace() as folder:
        for case in _cases(folder):
            if asked.cases is None or case.name.startswith(tuple(asked.cases)):
                table.rows.append(_row(case, folder))
    table.notes += [
        "Measuring: the whole command `widenet plan --measure`. Training: its steps, evaluations and"
        " checkpoints, by its log. Recommending: 100 items for every example. Neither includes the start of"
        " the program.",
    ]
    print(table)
    publish("hours", [table], asked.out)


def _cases(folder: Path) -> list[Case]:
    draw = np.random.default_rng(0)
    gowalla, pictures = folder / "gowalla", folder / "pictures"
    ingest(
        [DATA / "gowalla" / "train.txt"], gowalla, heldout=DATA / "gowalla" / "test.txt", format="adjacency"
    )
    rows = [np.unique((WIDTH * draw.random(HISTORY) ** 3).astype(np.int64)).tolist() for _ in range(EXAMPLES)]
    dataset_from_lists(folder / "million", rows, width=WIDTH)
    labels = [[int(label)] for label in draw.integers(CLASSES, size=PICTURES)]
    pixels = [row.tolist() for row in draw.random((PICTURES, PIXELS), dtype=np.float32)]
    dataset_from_lists(pictures, labels, width=CLASSES, dense={"pixels": pixels})
    best, alexnet = (presets(name)["best"] for name in ("gowalla", "alexnet"))
    adam = {"epochs": 3, "batch_size": 1024, "optimizer": "adam"}
    return [
        Case(
            "Gowalla, its preset, 2 epochs, evaluated twice",
            *_documents(*best, epochs=2, evaluation=EVALUATION),
            gowalla,
            1,
        ),
        Case(f"AlexNet, {PICTURES} pictures, 2 epochs", *_documents(*alexnet, epochs=2), pictures, 1),
        Case(
            "1,000,000 x 128 in and out, softmax, adam, batch 1024, 3 epochs",
            million(),
            adam,
            folder / "million",
            1,
        ),
    ]


def _documents(network: Path, training: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return json.loads(network.read_text("utf-8")), {**json.loads(training.read_text("utf-8")), **changes}


def _row(case: Case, folder: Path) -> list[str]:
    (folder / "network.json").write_text(json.dumps(case.network))
    (folder / "training.json").write_text(json.dumps(case.training))
    line = [sys.executable, "-m", "widenet"]
    words = [str(folder / "network.json"), str(folder / "training.json"), "--data", str(case.data)]
    started = time.monotonic()
    said = subprocess.run(
        [*line, "plan", *words, "--measure", "--json"], check=True, capture_output=True, text=True
    )
    measuring = time.monotonic() - started
    planned = json.loads(said.stdout)["measured"]
    out = folder / f"run-{len([*folder.glob('run-*')])}"
    subprocess.run([*line, "train", *words, "--out", str(out), "--quiet"], check=True)
    records = [json.loads(text) for text in (out / "log.jsonl").read_text("utf-8").splitlines()]
    parts = ("seconds", "evaluation_seconds", "checkpoint_seconds")
    training = sum(record.get(part, 0.0) for record in records for part in parts)
    model = Model.load(out)
    started = time.monotonic()
    for _ in model.predict(case.data):
        pass
    recommending = time.monotonic() - started
    return [
        case.name,
        duration(measuring),
        *_compared(planned["training_seconds"], training),
        *_compared(planned["recommendation_seconds"], recommending),
    ]


def _compared(planned: float, taken: float) -> list[str]:
    return [duration(planned), duration(taken), f"{planned / taken:.2f}"]
