"""Compares the memory that `widenet plan` predicts with the peak resident memory of `widenet train`."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import measured
from benchmarks.places import DATA, presets, workplace
from widenet import dataset_from_lists, ingest

WIDTH, EXAMPLES, HISTORY = 1_000_000, 4096, 30


def million(sample: dict[str, Any] | None = None) -> dict[str, Any]:
    """A network over WIDTH items, its output sampled."""
    return {
        "layers": [
            {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
            {"name": "taste", "units": 128, "activation": "tanh", "initializer": "gaussian"},
            {"name": "next", "kind": "output", "field": "items", "initializer": "gaussian", "sample": sample},
        ]
    }


@dataclass(frozen=True)
class Case:
    """A real training, cut to one epoch without evaluation."""

    name: str
    network: dict[str, Any]
    training: dict[str, Any]
    data: Path
    processes: int


def run() -> None:
    """Print predicted and measured memory of each training, by its largest process."""
    with workplace() as folder:
        print("\nOne epoch each; the largest process; GB\n")
        print(
            "| training | processes | weights + state | predicted | measured | predicted / measured"
            " |\n|---|---|---|---|---|---|"
        )
        for case in _cases(folder):
            predicted, measured = _predicted(case, folder), _measured(case, folder)
            kept = predicted["weights"] + predicted["state"]
            total = predicted["total"]
            row = f"{kept / 1e9:.2f} | {total / 1e9:.2f} | {measured / 1e9:.2f} | {total / measured:.2f}"
            print(f"| {case.name} | {case.processes} | {row} |", flush=True)


def _cases(folder: Path) -> list[Case]:
    draw = np.random.default_rng(0)
    rows = [np.unique((WIDTH * draw.random(HISTORY) ** 3).astype(np.int64)).tolist() for _ in range(EXAMPLES)]
    dataset_from_lists(folder / "million", rows, width=WIDTH)
    dataset_from_lists(folder / "few", [[row % 50, 50 + 7 * row % 50] for row in range(64)], width=100)
    ingest([DATA / "gowalla" / "train.txt"], folder / "gowalla", format="adjacency")
    ingest([DATA / "goodbooks-10k" / "to_read.csv"], folder / "goodbooks")
    gowalla, goodbooks = (presets(name)["best"] for name in ("gowalla", "goodbooks"))
    adam, sample = (
        {"epochs": 1, "batch_size": 1024, "optimizer": "adam"},
        {
            "kind": "popularity",
            "units": 10_000,
        },
    )
    few = {
        "layers": [{**layer, **({"units": 8} if "units" in layer else {})} for layer in million()["layers"]]
    }
    return [
        Case("the program: 8 units, 100 items", few, adam, folder / "few", 1),
        Case("Gowalla, its preset", *_documents(*gowalla), folder / "gowalla", 1),
        Case("goodbooks, its preset", *_documents(*goodbooks), folder / "goodbooks", 2),
        Case("1,000,000 x 128 in and out, softmax, adam, batch 1024", million(), adam, folder / "million", 1),
        Case("the same, over a sample of 10,000 by popularity", million(sample), adam, folder / "million", 1),
    ]


def _documents(network: Path, training: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    found = json.loads(training.read_text())
    kept = {key: value for key, value in found.items() if key not in ("evaluation", "keep")}
    return json.loads(network.read_text()), {**kept, "epochs": 1}


def _command(case: Case, folder: Path, *words: str) -> list[str]:
    (folder / "network.json").write_text(json.dumps(case.network))
    (folder / "training.json").write_text(json.dumps(case.training))
    documents = [
        "network.json",
        "training.json",
        "--data",
        str(case.data),
        "--processes",
        str(case.processes),
    ]
    return [sys.executable, "-m", "widenet", words[0], *documents, *words[1:]]


def _predicted(case: Case, folder: Path) -> dict[str, int]:
    line = _command(case, folder, "plan", "--device", "cpu", "--json")
    found: dict[str, int] = json.loads(
        subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout
    )["memory_bytes"]
    return found


def _measured(case: Case, folder: Path) -> int:
    """Return the peak resident memory of a training's largest process, in bytes."""
    line = _command(case, folder, "train", "--out", f"run-{len([*folder.glob('run-*')])}", "--quiet")
    return measured(line, folder).peak_bytes
