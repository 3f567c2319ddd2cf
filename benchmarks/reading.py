"""Measures the cost of checking digests: on opening a dataset, in its first epoch, and while training."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.places import workplace
from benchmarks.synthetic import write_histories
from widenet import Dataset, train
from widenet.data.rules import FieldLayout
from widenet.data.stream import Stream
from widenet.data.writer import ROWS_PER_BATCH, write_dataset

EXAMPLES, LENGTH, WIDTH, BATCH = 800_000, 150, 1_000_000, 1024
"""Size of the dataset for pure reading: half a gigabyte."""
TRAINED, TRAINED_WIDTH, UNITS = 10_000, 27_278, 128


def run() -> None:
    """Print seconds of processor a gigabyte of each way of checking, and their share of an epoch."""
    with workplace() as folder:
        _write(folder / "large")
        size = sum(file.size_bytes for file in Dataset.open(folder / "large").manifest.files.values()) / 1e9
        print(
            f"\n{size:.2f} GB of examples, {EXAMPLES:,} x {LENGTH} entries, batches of {BATCH:,} in random"
            " order, page cache warm\n"
        )
        print("| | processor seconds | a GB |\n|---|---|---|")
        per_gb = 0.0
        for name, seconds in _measured(folder / "large"):
            print(f"| {name} | {seconds:.2f} | {seconds / size:.2f} |", flush=True)
            per_gb = seconds / size if name == "checking, the difference" else per_gb
        write_histories(folder, TRAINED_WIDTH, TRAINED)
        document = {"layers": _layers()}
        ends: list[float] = []
        options = {"epochs": 2, "optimizer": "adagrad"}
        train(
            document,
            options,
            folder / "dataset",
            folder / "run",
            after_epoch=lambda *_: ends.append(time.process_time()),
        )
        seconds = ends[1] - ends[0]
        trained = sum(path.stat().st_size for path in (folder / "dataset").glob("examples-*")) / 1e9
        cost = trained * per_gb
        print(
            f"\nTraining {TRAINED_WIDTH:,} x {UNITS} x {TRAINED_WIDTH:,} on {trained * 1000:.1f} MB of"
            " examples"
        )
        print(f"takes {seconds:.1f} processor seconds an epoch.")
        print(
            f"Checking them once takes {cost * 1000:.0f} ms, {cost / seconds:.2%} of the first epoch and"
            " nothing of later ones."
        )


def _measured(path: Path) -> Iterator[tuple[str, float]]:
    started = time.process_time()
    for each in sorted(path.glob("examples-*")):
        with each.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    yield "SHA-256 of the files alone", time.process_time() - started
    started = time.process_time()
    dataset = Dataset.open(path)
    yield "opening the dataset", time.process_time() - started
    first, second = _epoch(dataset), _epoch(dataset)
    yield "first epoch, every block is compared", first
    yield "second epoch, nothing is compared", second
    yield "checking, the difference", first - second


def _epoch(dataset: Dataset) -> float:
    """Seconds of processor in which all batches of an epoch are read."""
    stream = Stream(dataset, ["items"], BATCH, seed=1)
    started = time.process_time()
    for step in range(stream.steps_per_epoch):
        stream.batch(0, step)
    return time.process_time() - started


def _layers() -> list[dict[str, object]]:
    return [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": UNITS, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]


def _write(path: Path) -> None:
    draw = np.random.default_rng(0)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, EXAMPLES, ROWS_PER_BATCH):
            rows = min(ROWS_PER_BATCH, EXAMPLES - start)
            items = (
                draw.integers(1, WIDTH // LENGTH, size=(rows, LENGTH), dtype=np.uint32).cumsum(
                    axis=1, dtype=np.uint32
                )
                - 1
            )
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * LENGTH)
            ids = pa.array([f"user {row}" for row in range(start, start + rows)])
            yield pa.RecordBatch.from_arrays(
                [ids, pa.ListArray.from_arrays(offsets, pa.array(items.ravel()))], ["id", "items"]
            )

    write_dataset(path, layouts=[FieldLayout("items", WIDTH)], batches=batches(), vocabularies={})
