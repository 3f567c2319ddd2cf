"""Measures how much longer the first training after an installation takes, because it compiles."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.places import workplace
from benchmarks.results import Table, publish, spread
from widenet import dataset_from_lists

EXAMPLES, WIDTH, HISTORY = 512, 2000, 20


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=5, help="first and next trainings of each document")


def run(asked: argparse.Namespace) -> None:
    """Print the seconds of first and next trainings, which take turns."""
    table = Table("The first training", ["documents", "first, s", "next, s", "longer, s"])
    with workplace() as folder:
        draw = np.random.default_rng(0)
        rows = [np.unique(draw.integers(WIDTH, size=HISTORY)).tolist() for _ in range(EXAMPLES)]
        train, validation = [row[:-1] for row in rows], [row[-1:] for row in rows]
        dataset_from_lists(folder / "data", train, validation=validation, width=WIDTH)
        _taken(folder, [], folder / "kept")
        for name, words in _documents(folder).items():
            _taken(folder, words, folder / "kept")
            first, kept = [], []
            for number in range(asked.rounds):
                first.append(_taken(folder, words, folder / f"{name} {number}"))
                kept.append(_taken(folder, words, folder / "kept"))
            longer = [slow - fast for slow, fast in zip(first, kept, strict=True)]
            table.rows.append([name, *(spread(seconds, "{:.1f}") for seconds in (first, kept, longer))])
    table.notes.append(
        "Whole commands `widenet train` of a small dataset; first: with an empty folder for compiled code."
    )
    print(table)
    publish("first", [table], asked.out)


def _documents(folder: Path) -> dict[str, list[str]]:
    """Return the words that name the documents of a training, by its name."""
    layers: list[dict[str, Any]] = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 64, "activation": "sigmoid"},
        {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
    (folder / "network.json").write_text(json.dumps({"layers": layers}))
    (folder / "training.json").write_text(json.dumps({"optimizer": "rmsprop"}))
    return {
        "the usual ones": [],
        "sigmoid, rmsprop": [str(folder / "network.json"), str(folder / "training.json")],
    }


def _taken(folder: Path, words: list[str], cache: Path) -> float:
    """Return the seconds of a training with a folder for compiled code."""
    out = folder / f"run-{time.monotonic_ns()}"
    line = [sys.executable, "-m", "widenet", "train", *words, "--data", str(folder / "data"), "--quiet"]
    started = time.monotonic()
    subprocess.run([*line, "--out", str(out)], check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)})
    return time.monotonic() - started
