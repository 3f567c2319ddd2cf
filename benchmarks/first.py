"""Measures how much longer the first epoch of a training in a new process takes than the second."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.places import workplace
from benchmarks.results import Table, publish, spread
from benchmarks.usual import default_documents
from widenet import Dataset, dataset_from_lists

EXAMPLES, WIDTH, HISTORY = 20_000, 20_000, 20


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=5, help="trainings of each document")


def run(asked: argparse.Namespace) -> None:
    """Print the seconds of the first two epochs of trainings, each in a process of its own."""
    table = Table("The first epoch", ["documents", "first, s", "second, s", "first / second"])
    with workplace() as folder:
        draw = np.random.default_rng(0)
        rows = [np.unique(draw.integers(WIDTH, size=HISTORY)).tolist() for _ in range(EXAMPLES)]
        train, validation = [row[:-1] for row in rows], [row[-1:] for row in rows]
        dataset_from_lists(folder / "data", train, validation=validation, width=WIDTH)
        for name, words in _documents(folder).items():
            pairs = [_seconds(folder, words, folder / f"{name} {number}") for number in range(asked.rounds)]
            first, second = ([*each] for each in zip(*pairs, strict=True))
            ratios = [one / other for one, other in pairs]
            table.rows.append([name, *(spread(each, "{:.2f}") for each in (first, second, ratios))])
    print(table)
    publish("first", [table], asked.out)


def _documents(folder: Path) -> dict[str, list[str]]:
    """Return the paths of the documents of a training, by its name."""
    layers: list[dict[str, Any]] = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 64, "activation": "sigmoid"},
        {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
    usual, training = default_documents(Dataset.open(folder / "data"))
    documents = {
        "the usual ones": (usual, training | {"epochs": 2}),
        "sigmoid, rmsprop": ({"layers": layers}, {"optimizer": "rmsprop", "epochs": 2}),
    }
    found = {}
    for name, (network, own) in documents.items():
        paths = folder / f"{name} network.json", folder / f"{name} training.json"
        for path, document in zip(paths, (network, own), strict=True):
            path.write_text(json.dumps(document), "utf-8")
        found[name] = [*map(str, paths)]
    return found


def _seconds(folder: Path, words: list[str], out: Path) -> tuple[float, float]:
    """Return the seconds of the first two epochs of a training."""
    line = [sys.executable, "-m", "widenet", "train", *words, "--data", str(folder / "data"), "--quiet"]
    subprocess.run([*line, "--out", str(out)], check=True)
    epochs = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    first, second = [float(epoch["seconds"]) for epoch in epochs if "seconds" in epoch][:2]
    return first, second
