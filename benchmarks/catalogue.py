"""Generated interactions with 10,000,000 items: ingest, train, recommend; seconds, memory, bytes of each."""

import argparse
import json
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.commands import COLUMNS, measured, row, widenet
from benchmarks.results import Table, publish
from benchmarks.synthetic import draw_interactions

ITEMS, USERS, INTERACTIONS, RECOMMENDED = 10_000_000, 5_000_000, 100_000_000, 100_000
UNITS, BATCH, SAMPLE, GROUPS, K = 64, 512, 4096, 20, 10
_USERS_AT_ONCE = 100_000
_SCHEMA = pa.schema([("user", pa.int32()), ("item", pa.int32())])


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--items", type=int, default=ITEMS, help="items of the catalogue")
    parser.add_argument("--users", type=int, default=USERS, help="users of the training")
    parser.add_argument("--interactions", type=int, default=INTERACTIONS, help="interactions of all users")
    parser.add_argument("--recommended", type=int, default=RECOMMENDED, help="users who get recommendations")
    parser.add_argument("--batch", type=int, default=BATCH, help="users in a training step")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="items that a step of the softmax draws")
    parser.add_argument("--folder", type=Path, help="folder of the work; default: the temporary folder")


def run(asked: argparse.Namespace) -> None:
    """Print a table: a row for each command."""
    with tempfile.TemporaryDirectory(prefix="widenet-benchmark-", dir=asked.folder) as name:
        table = _measure(Path(name), asked)
    print(table, flush=True)
    publish("catalogue", [table], asked.out)


def write_interactions(folder: Path, users: int, items: int, interactions: int, some: int) -> None:
    """Write `all.parquet`, a block of users at a time, shuffled, and `some.parquet`, of the first users.

    Args:
        folder: The folder to write to.
        users: Number of users.
        items: Number of items; all users together have each.
        interactions: Number of interactions.
        some: Number of users of the second file.
    """
    with (
        parquet.ParquetWriter(folder / "all.parquet", _SCHEMA) as to_all,
        parquet.ParquetWriter(folder / "some.parquet", _SCHEMA) as to_some,
    ):
        for start in range(0, users, _USERS_AT_ONCE):
            block = range(start, min(start + _USERS_AT_ONCE, users))
            number = interactions * block.stop // users - interactions * start // users
            user, item = draw_interactions(block, users, items, number, groups=GROUPS)
            order = np.random.default_rng([1, start]).permutation(number)
            columns = user[order].astype(np.int32), item[order].astype(np.int32)
            to_all.write_table(pa.table(columns, schema=_SCHEMA))
            if start < some:
                chosen = columns[0] < some
                to_some.write_table(pa.table([column[chosen] for column in columns], schema=_SCHEMA))


def documents(batch: int = BATCH, units: int = SAMPLE) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the network and training document of each training, by its name."""
    wide = {"kind": "gaussian", "deviation": 0.1}
    history = {"name": "history", "kind": "input", "field": "items", "scale": "rsqrt"}
    taste = {"name": "taste", "units": UNITS, "initializer": wide}
    output = {"name": "next", "kind": "output", "field": "items"}
    sample = {"kind": "popularity", "units": units}
    sampled = [history, {**taste, "activation": "tanh"}, {**output, "sample": sample}]
    training = {"epochs": 1, "batch_size": batch}
    return {
        "sampled softmax": (
            {"layers": sampled},
            {**training, "optimizer": {"kind": "adagrad", "learning_rate": 0.1}},
        ),
    }


def _measure(folder: Path, asked: argparse.Namespace) -> Table:
    title = (
        f"{asked.items:,} items x {UNITS}, {asked.users:,} users, {asked.interactions:,} interactions,"
        f" batch {asked.batch:,}"
    )
    table = Table(title, COLUMNS)

    def note(text: str) -> None:
        table.notes.append(text)
        print(text, flush=True)

    def add(name: str, out: str, words: str) -> None:
        table.rows.append(row(name, measured(widenet(*words.split()), folder), folder / out))
        print(*table.rows[-1], sep=" | ", flush=True)

    started = perf_counter()
    write_interactions(folder, asked.users, asked.items, asked.interactions, asked.recommended)
    size = (folder / "all.parquet").stat().st_size
    note(f"Generated in {perf_counter() - started:,.0f} s: {size / 1e9:.2f} GB of Parquet.")
    add("ingest", "all", "data ingest all.parquet --out all")
    for name, (network, training) in documents(asked.batch, asked.sample).items():
        (folder / "network.json").write_text(json.dumps(network), "utf-8")
        (folder / "training.json").write_text(json.dumps(training), "utf-8")
        run = name.replace(" ", "-")
        add(f"one epoch, {name}", run, f"train network.json training.json --data all --out {run} --quiet")
        note(_learning(name, folder / run))
    add("ingest for recommendations", "some", f"data ingest some.parquet --vocabulary {run} --out some")
    recommended = f"recommendations for {asked.recommended:,} users"
    add(recommended, "best.parquet", f"predict {run} --data some -k {K} --out best.parquet")
    note(_own_group(folder / "best.parquet"))
    return table


def _learning(name: str, run: Path) -> str:
    """What the log of a training says of its only epoch."""
    facts = json.loads((run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    return (
        f"{name}: loss {facts['start_loss']:.4f} at the start, {facts['loss']:.4f} in the epoch's mean;"
        f" {facts['examples_per_second']:,.0f} users a second, {facts['seconds']:,.0f} s of steps,"
        f" {facts['checkpoint_seconds']:,.0f} s of checkpoints."
    )


def _own_group(path: Path) -> str:
    best = parquet.read_table(path, columns=["user", "item"])
    user, item = (np.array(best[name].to_pylist(), dtype=np.int64) for name in ("user", "item"))
    share = float((user % GROUPS == item % GROUPS).mean())
    return f"{share:.2f} of the recommendations are of the user's group; {1 / GROUPS:.2f} by chance."
