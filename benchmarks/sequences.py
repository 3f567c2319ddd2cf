"""Changes settings of the default documents along sequences, and compares them on validation parts."""

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from benchmarks import changes
from benchmarks.diginetica import PLACES, SESSIONS
from benchmarks.neighbourhoods import difference, drawn_users, metric_cells, metrics_of
from benchmarks.places import DATA, workplace
from benchmarks.results import processor
from benchmarks.usual import default_documents
from widenet import Dataset, ingest, split, train
from widenet.baselines.evaluated_lists import evaluate_lists
from widenet.baselines.methods import successors
from widenet.metrics.ranking import Metrics

_NEWEST = 15_000
"""Sessions of Diginetica."""
_USERS, _ITEMS, _FOLLOWING, _LONGEST = 6_000, 3_000, 10, 30
"""Of the generated walks: walkers, items, items that often follow each item, and most steps."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--sets", nargs="+", choices=[*_SETS], default=[*_SETS], help="data sets")
    parser.add_argument("--epochs", type=int, help="epochs of each training; default: as the documents say")
    changes.add_option(parser, PLACES)


def run(asked: argparse.Namespace) -> None:
    """Print metrics of each sequence's last item, for the default documents and for changed ones."""
    columns = ("data", "change", "Recall@20", "NDCG@20", "difference", "95 %", "epochs", "s")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name in asked.sets:
        with workplace() as folder:
            lines = (f"{number} {' '.join(row)}\n" for number, row in enumerate(_SETS[name]()))
            (folder / "sequences.txt").write_text("".join(lines), "utf-8")
            ingest([folder / "sequences.txt"], folder / "whole", format="adjacency", sequence=True)
            dataset = split(folder / "whole", folder / "data", validation_last=1)
            print(f"| {name} | baseline successors | {_of_successors(dataset)} | - | - | - | - |", flush=True)
            first: Metrics | None = None
            for number, change in enumerate([{}, *asked.changes]):
                metrics, cost = _trained(dataset, change, asked.epochs, folder / str(number))
                compared = "- | -" if first is None else difference(first, metrics)
                first = first or metrics
                cells = [name, changes.shown(change), metric_cells(metrics), compared, cost]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nProcessor: {processor()}.")


def _of_successors(dataset: Dataset) -> str:
    """Return Recall@20 and NDCG@20 of what most often follows the newest item, as cells."""
    sequences = dataset.sparse("items", slice(None))
    lists = successors(sequences, dataset.field("items").width)
    return metric_cells(evaluate_lists(lists, dataset, "items", "validation", [20], in_order=True))


def _trained(dataset: Dataset, change: changes.Change, epochs: int | None, out: Path) -> tuple[Metrics, str]:
    """Train the default documents with a change; return the metrics, and epochs and seconds as cells."""
    documents = default_documents(dataset)
    changes.apply(change, documents, PLACES)
    network, training = documents
    started = time.perf_counter()
    model = train(network, {**training, "epochs": epochs or training["epochs"]}, dataset, out)
    cost = f"{len((out / 'log.jsonl').read_text('utf-8').splitlines())} | {time.perf_counter() - started:.0f}"
    rows = drawn_users(dataset, "validation", dataset.num_examples)
    return metrics_of(model.network, dataset, "validation", rows), cost


def _sessions() -> Iterable[list[str]]:
    """Return the newest sessions of Diginetica."""
    return [line.split() for line in SESSIONS.read_text("utf-8").splitlines()[-_NEWEST:]]


def _films() -> Iterable[list[str]]:
    """Return the films of 1,024 users of MovieLens 20M in the order of their ratings."""
    for line in (DATA / "dsstne-movielens" / "movielens_input_1024.txt").read_text("utf-8").splitlines():
        rated = [film.split(",") for film in line.split("\t")[1].split(":") if film]
        yield [film for film, _ in sorted(rated, key=lambda pair: int(pair[1]))]


def _walks() -> Iterable[list[str]]:
    """Return generated walks: half of the steps go to an item that often follows, others to a popular one."""
    random = np.random.default_rng(0)
    following = random.integers(_ITEMS, size=(_ITEMS, _FOLLOWING))
    chances = np.cumsum(1 / np.arange(1, _ITEMS + 1))
    for _ in range(_USERS):
        popular = np.searchsorted(chances, random.random(_LONGEST) * chances[-1])
        walk = [popular[0]]
        for step in range(1, random.integers(3, _LONGEST)):
            goes_on = random.random() < 0.5
            walk.append(following[walk[-1], random.integers(_FOLLOWING)] if goes_on else popular[step])
        yield [str(item) for item in walk]


_SETS: dict[str, Callable[[], Iterable[list[str]]]] = {
    "diginetica": _sessions,
    "movielens": _films,
    "walks": _walks,
}
"""The sequences of each set."""
