"""Compares the presets of examples/gowalla with baselines and published figures."""

import argparse
import csv
import json
from pathlib import Path

from benchmarks.places import DATA, presets, workplace
from widenet import Dataset, ingest, train
from widenet.baselines.measure import measured
from widenet.parallel.exchange import fixed_arithmetic

_KS = (20,)
_POPULAR = 100
"""Interactions of a popular item."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    precisions = ("float32", "bfloat16")
    parser.add_argument(
        "--precisions", nargs="+", choices=precisions, default=precisions, help="precisions to train in"
    )


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 of both presets, of the baselines, and the published table."""
    with workplace() as folder:
        prepare(folder)
        dataset = Dataset.open(folder / "data")
        print("Gowalla, published split, all items ranked, training items excluded\n")
        print("| model | Recall@20 | NDCG@20 | seconds of training |\n|---|---|---|---|")
        for precision in asked.precisions:
            for name, (network, training) in presets("gowalla").items():
                run = folder / f"{name} {precision}"
                document = {**json.loads(training.read_text("utf-8")), "precision": precision}
                metrics = train(network, document, dataset, run).evaluate(dataset, ks=_KS)
                _row(f"widenet, {name}, {precision}", metrics, f"{_seconds(run):.0f}")
        with fixed_arithmetic():
            baselines = measured(dataset, "items", "heldout", _KS)
        for name, metrics in baselines.items():
            _row(f"widenet's baseline {name}", metrics)
        for name, recall, ndcg in _published():
            _row(name, {"recall@20": recall, "ndcg@20": ndcg})
        _print_shares(dataset)


def prepare(folder: Path) -> None:
    """Make the dataset "data" in a folder: the published split."""
    prepare_split(folder, DATA / "gowalla")


def prepare_split(folder: Path, source: Path) -> None:
    """Make the dataset "data" of the files of a published split, with a line of items for each user."""
    ingest([source / "train.txt"], folder / "data", heldout=source / "test.txt", format="adjacency")


def _row(name: str, metrics: dict[str, float], seconds: str = "-") -> None:
    print(f"| {name} | {metrics['recall@20']:.4f} | {metrics['ndcg@20']:.4f} | {seconds} |", flush=True)


def _print_shares(dataset: Dataset) -> None:
    """Print how much of popular and of other items the test part has."""
    tested = dataset.counts("items", "heldout")
    interactions = dataset.counts("items") + tested
    popular = interactions >= _POPULAR
    of_popular, of_others = (tested[some].sum() / interactions[some].sum() for some in (popular, ~popular))
    print(
        f"\nItems with {_POPULAR} or more interactions have {of_popular:.1%} of them in the test part,"
        f" others {of_others:.1%}."
    )


def _seconds(run: Path) -> float:
    return sum(float(json.loads(line)["seconds"]) for line in (run / "log.jsonl").read_text().splitlines())


def _published() -> list[tuple[str, float, float]]:
    """The published leaderboard, best first."""
    with (DATA / "gowalla" / "BARS_gowalla_m1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = {key.strip().lower(): key for key in rows[0]}
    table = [
        (row[names["model"]].strip(), float(row[names["recall@20"]]), float(row[names["ndcg@20"]]))
        for row in rows
    ]
    return sorted(table, key=lambda row: -row[1])
