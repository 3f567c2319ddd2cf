"""Compares the presets of examples/gowalla with published figures, in float32 and in bfloat16."""

import csv
import json
from pathlib import Path

from benchmarks.places import DATA, presets, workplace
from widenet import Model, ingest, train
from widenet.spec.training import TrainingSpec


def run() -> None:
    """Print Recall@20 and NDCG@20 of every preset, and the published table."""
    with workplace() as folder:
        ingest([DATA / "gowalla" / "train.txt"], folder / "data", heldout=DATA / "gowalla" / "test.txt")
        print("Gowalla, published split, all items ranked, training items excluded\n")
        print("| model | Recall@20 | NDCG@20 | seconds of training |\n|---|---|---|---|")
        for name, (network, training) in presets("gowalla").items():
            for precision in ("float32", "bfloat16"):
                document = TrainingSpec.of(
                    {**json.loads(training.read_text("utf-8")), "precision": precision}
                )
                run = folder / f"{name} {precision}"
                model: Model = train(network, document, folder / "data", run)
                metrics = model.evaluate(folder / "data", ks=(20,))
                row = f"{metrics['recall@20']:.4f} | {metrics['ndcg@20']:.4f} | {_seconds(run):.0f}"
                print(f"| widenet, {name}, {precision} | {row} |", flush=True)
        for name, recall, ndcg in _published():
            print(f"| {name} | {recall:.4f} | {ndcg:.4f} | - |")


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
