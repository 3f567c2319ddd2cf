"""Compares pruned runs with dense ones: bytes, NDCG on Gowalla, and the time of a ranking."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.alternately import THREADS, Program, measure
from benchmarks.places import DATA, presets, workplace
from benchmarks.results import Table, processor, publish

ITEMS, COLUMNS, K = 1_000_000, 512, 100
USERS = (512, 1)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--units", type=int, nargs="*", default=[512], help="units of Gowalla's vectors")
    parser.add_argument("--smaller", type=float, nargs="*", default=[10], help="how many times, in bytes")
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn, at least one step")
    parser.add_argument("--items", type=int, default=ITEMS, help="how many are ranked")


def run(asked: argparse.Namespace) -> None:
    """Print a table of losses, and one of times."""
    if asked.units:
        _print_losses(asked.units, asked.smaller)
    if asked.rounds:
        tables = [_times(num, asked) for num in USERS]
        print(*tables, sep="\n", flush=True)
        publish("pruning", tables, asked.out)


def nonzeros_for(columns: int, smaller: float) -> int:
    """Return how many numbers of a vector, with their columns, take so many times fewer bytes than all."""
    bytes_of_column = 1 if columns <= 2**8 else 2
    return max(1, int(4 * columns / smaller) // (4 + bytes_of_column))


def _print_losses(widths: list[int], smaller: list[float]) -> None:
    from widenet import ingest

    print("| units | run | bytes of weights | of float32 | NDCG@20 | of float32 |\n|---|---|---|---|---|---|")
    with workplace() as folder:
        ingest([DATA / "gowalla" / "train.txt"], folder / "data", heldout=DATA / "gowalla" / "test.txt")
        for units in widths:
            first: tuple[int, float] | None = None
            for name, size, gain in _runs(folder, units, smaller):
                first = first or (size, gain)
                shares = f"{size / first[0]:.4f}", f"{gain / first[1]:.5f}"
                print(f"| {units} | {name} | {size:,} | {shares[0]} | {gain:.6f} | {shares[1]} |", flush=True)
    print(f"\nProcessor: {processor()}, {THREADS} threads.\n")


def _runs(folder: Path, units: int, smaller: list[float]) -> Iterator[tuple[str, int, float]]:
    """Yield name, bytes and NDCG@20 of a dense run, and of pruned ones."""
    from widenet import prune, train
    from widenet.runs.made_of import num_bytes

    network, training = (json.loads(path.read_text("utf-8")) for path in presets("gowalla")["best"])
    network["layers"][1]["units"] = units
    out = folder / f"{units}"
    model = train(network, training, folder / "data", out)
    yield "dense", num_bytes(out), model.evaluate(folder / "data", ks=(20,))["ndcg@20"]
    for times in smaller:
        kept = nonzeros_for(units, times)
        numbers = "1 number" if kept == 1 else f"{kept} numbers"
        pruned = prune(out, folder / f"{units} {kept} after", kept)
        gain = pruned.evaluate(folder / "data", ks=(20,))["ndcg@20"]
        yield f"{numbers}, pruned afterwards", num_bytes(folder / f"{units} {kept} after"), gain
        trained, small = folder / f"{units} {kept}", folder / f"{units} {kept} small"
        train(network, {**training, "pruning": {"nonzeros": kept}}, folder / "data", trained)
        gain = prune(trained, small).evaluate(folder / "data", ks=(20,))["ndcg@20"]
        yield f"{numbers}, pruned in training", num_bytes(small), gain


def _times(num: int, asked: argparse.Namespace) -> Table:
    words = {"num": num, "items": asked.items}
    kept = nonzeros_for(COLUMNS, 10)
    programs = [
        Program("dense", "benchmarks.pruning:ranking", {**words, "kept": 0}, ["widenet", "torch"]),
        Program(f"{kept} numbers", "benchmarks.pruning:ranking", {**words, "kept": kept}),
    ]
    found = measure(programs, asked.rounds, asked.seconds)
    who = f"{num} users at once" if num > 1 else "1 user"
    title = f"The best {K} of {asked.items:,} items by product of {COLUMNS} numbers, for {who}"
    table = Table(title, ["run", "time / dense one's", "ms"])
    for measured in found:
        table.add(measured, found[0])
    return table


def ranking(num: int, items: int, kept: int) -> Callable[[int], dict[str, Any]]:
    """Return steps of `widenet.predict.top_k` for drawn vectors, dense if `kept` is 0."""
    from benchmarks.smaller import drawn_network, rankings
    from widenet.runs.pruning import keep_largest

    network = drawn_network(max(USERS), items, COLUMNS)
    if kept:
        keep_largest(network, kept)
    return rankings(network, num, K)
