"""Compares the presets of examples/goodbooks with popularity and with `implicit` on goodbooks-10k."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.both_presets import both_presets
from benchmarks.places import DATA, workplace
from widenet import Dataset, ingest, split
from widenet.baselines.methods import evaluate_popularity
from widenet.data.manifest import Part
from widenet.data.stream import Stream
from widenet.metrics.ranking import RankingMetrics
from widenet.sparse import SparseBatch

if TYPE_CHECKING:
    from implicit.als import AlternatingLeastSquares

KS = (20,)
_ITERATIONS = 15
ALS = [
    {"factors": factors, "regularization": 10.0, "alpha": alpha}
    for factors in (128, 256, 512)
    for alpha in (1.0, 10.0, 40.0)
]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the trainings")


def run(asked: argparse.Namespace) -> None:
    """Print Recall@20 and NDCG@20 of every model: 80/20 split per user, seed 0, training items excluded."""
    with workplace() as folder:
        prepare(folder)
        split(folder / "data", folder / "tuning", validation=0.1)
        dataset, tuning = Dataset.open(folder / "data"), Dataset.open(folder / "tuning")
        print(
            "\ngoodbooks-10k to_read, a fifth of each user's books held out, all books ranked, training books"
            " excluded\n"
        )
        print("| model | Recall@20 | NDCG@20 |\n|---|---|---|")
        for seed in asked.seeds:
            named = f", seed {seed}" if len(asked.seeds) > 1 else ""
            for name, metrics in both_presets("goodbooks", dataset, folder / str(seed), KS, seed=seed):
                _row(f"widenet, {name}{named}", metrics)
        best = max(ALS, key=lambda numbers: als(tuning, "validation", numbers)[-1][1]["ndcg@20"])
        described = ", ".join(f"{key} {value:g}" for key, value in best.items())
        _row(
            f"implicit ALS, best of {len(ALS)} on validation ({described})",
            als(dataset, "heldout", best)[-1][1],
        )
        _row("popularity", evaluate_popularity(dataset, "items", ks=KS))


def prepare(folder: Path) -> None:
    """Make the dataset "data" in a folder: the books that users want to read, a fifth of them held out."""
    books = DATA / "goodbooks-10k"
    ingest([books / "to_read.csv"], folder / "whole", titles=books / "books.csv")
    split(folder / "whole", folder / "data", heldout=0.2)


def _row(name: str, metrics: dict[str, float]) -> None:
    print(f"| {name} | {metrics['recall@20']:.4f} | {metrics['ndcg@20']:.4f} |", flush=True)


def als(
    dataset: Dataset, part: Part, numbers: dict[str, float], every: bool = False
) -> list[tuple[float, dict[str, float]]]:
    """Run alternating least squares (Hu, Koren and Volinsky, ICDM 2008) for 15 iterations as users do.

    Gives seconds and metrics after the last iteration; with `every`, after each of them.
    """
    from implicit.als import AlternatingLeastSquares

    rows = dataset.sparse("items", slice(0, dataset.num_examples))
    shape = (dataset.num_examples, dataset.field("items").width)
    matrix = csr_matrix(
        (np.ones(rows.num_entries, dtype=np.float32), rows.indices.numpy(), rows.indptr.numpy()), shape=shape
    )
    model = AlternatingLeastSquares(iterations=_ITERATIONS, random_state=0, use_gpu=False, **numbers)
    found: list[tuple[float, dict[str, float]]] = []

    def follow(iteration: int, seconds: float, _: object) -> None:
        if every or iteration == _ITERATIONS - 1:
            found.append((seconds, _metrics(model, matrix, dataset, part)))

    model.fit(matrix, show_progress=False, callback=follow)
    return found


def _metrics(
    model: "AlternatingLeastSquares", matrix: csr_matrix, dataset: Dataset, part: Part
) -> dict[str, float]:
    metrics = RankingMetrics(KS, dataset.counts("items"))
    for batch in Stream(
        dataset, ["items"], 1024, seed=0, shuffle=False, part=part, skip_empty="items"
    ).batches(0):
        top, _ = model.recommend(batch.rows, matrix[batch.rows], N=max(KS), filter_already_liked_items=True)
        truth = batch.fields["items"]
        assert isinstance(truth, SparseBatch)
        metrics.add(top.astype(np.int64), truth.indptr.numpy(), truth.indices.numpy().astype(np.int64))
    return metrics.result()
