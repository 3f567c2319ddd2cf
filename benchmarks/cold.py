"""Measures recommendations of items that have no interactions, which a network knows by their attributes."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags

from benchmarks.places import DATA, presets, workplace
from widenet import Dataset, Model, ingest, train
from widenet.baselines.evaluate import truths
from widenet.metrics.ranking import Metrics, RankingMetrics
from widenet.predict.restrictions import Histories
from widenet.predict.top_k import Rules
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec

K, UNITS, SEED = 20, 64, 3
EVERY = 4
"""Of the users, every fourth takes part: with fewer interactions an item needs its description more."""
COLD_SHARE, HELDOUT_SHARE = 0.1, 0.2
"""Shares of the books that are cold, and of the interactions with others that are held out."""
CHOICES = (("authors",), ("authors", "language"), ("authors", "year"))
"""Sets of descriptions, of which the best is chosen on other books than those of the table."""
Pairs = list[tuple[str, str]]
"""Users with a book."""

Lists = Iterator[tuple[SparseBatch, NDArray[np.int64]]]
"""The held-out items of some users, and the best items for each of them."""


def run() -> None:
    """Print Recall@20 and NDCG@20 of books that nobody has in training, and of all others."""
    with workplace() as folder:
        known, heldout = divided(interactions(), SEED)
        chosen = _chosen(folder, known)
        data = ingested(known, heldout, folder / "data")
        is_cold = data.counts("items") == 0
        print(
            f"\ngoodbooks-10k to_read, {data.num_examples:,} users, {is_cold.sum():,} of {len(is_cold):,}"
            f" books without training interactions, described by {' and '.join(chosen)}\n"
        )
        print("| model | cold Recall | NDCG | warm Recall | NDCG | warm of all Recall | NDCG |")
        print("|---|---|---|---|---|---|---|")
        _row("random", [measured(_of_scores(data, is_cold, _random(len(is_cold))), is_cold, data)])
        _row("popularity", [measured(_of_scores(data, is_cold, _popular(data)), is_cold, data)])
        _row("content alone", [measured(_of_scores(data, is_cold, _content(data, chosen)), is_cold, data)])
        for name, by in (("network", ()), ("network, described", chosen)):
            _row(name, of_network(trained(data, by, folder / name), data, is_cold))


def interactions() -> Pairs:
    """Return the books that the users who take part want to read."""
    with (DATA / "goodbooks-10k" / "to_read.csv").open(encoding="utf-8", newline="") as file:
        pairs = [(row["user_id"], row["book_id"]) for row in csv.DictReader(file)]
    return [pair for pair in pairs if int(pair[0]) % EVERY == 0]


def divided(rows: Pairs, seed: int) -> tuple[Pairs, Pairs]:
    """Hold out all interactions with a tenth of the books, and a fifth of the others."""
    random, items = np.random.default_rng(seed), sorted({item for _, item in rows})
    cold = set(random.permutation(items)[: round(COLD_SHARE * len(items))].tolist())
    chances = random.random(len(rows))
    parts: tuple[Pairs, Pairs] = ([], [])
    for row, chance in zip(rows, chances, strict=True):
        parts[int(row[1] in cold or chance < HELDOUT_SHARE)].append(row)
    return parts


def ingested(known: Pairs, heldout: Pairs, folder: Path) -> Dataset:
    """Make a dataset, with the descriptions of all books."""
    books = DATA / "goodbooks-10k"
    known_columns, heldout_columns = (
        dict(zip(("user", "item"), zip(*pairs, strict=True), strict=True)) for pairs in (known, heldout)
    )
    return ingest(
        known_columns,
        folder,
        heldout=heldout_columns,
        items=books / "books.csv",
        items_id="id",
        items_separator=", ",
        items_sparse={"authors": "authors", "language": "language_code"},
        items_dense={"year": ["original_publication_year"]},
        normalize=True,
    )


def trained(data: Dataset, by: tuple[str, ...], out: Path) -> Model:
    """Train the preset of goodbooks with fewer units, described or not."""
    network, training = presets("goodbooks")["best"]
    document: dict[str, Any] = NetworkSpec.read(network).model_dump(exclude_unset=True)
    taste = document["layers"][1]
    taste["units"] = UNITS
    if by:
        taste["described_by"] = by
    return train(document, training, data, out)


def of_network(model: Model, data: Dataset, is_cold: NDArray[np.bool_]) -> list[Metrics]:
    """Measure cold books among cold ones, warm ones among warm ones, and warm ones among all."""
    everything = np.ones_like(is_cold)
    return [
        measured(_of_network(model, data, ranked), kept, data)
        for ranked, kept in ((is_cold, is_cold), (~is_cold, ~is_cold), (everything, ~is_cold))
    ]


def measured(lists: Lists, kept: NDArray[np.bool_], data: Dataset) -> Metrics:
    """Compute the metrics of lists, with the true items of a group alone."""
    metrics = RankingMetrics([K], data.counts("items"))
    for truth, best in lists:
        indices = truth.indices.numpy().astype(np.int64)
        owners = truth.example_of_entry().numpy()
        counts = np.bincount(owners[kept[indices]], minlength=truth.num_examples)
        metrics.add(best, np.concatenate([[0], np.cumsum(counts)]), indices[kept[indices]])
    return metrics.result()


def _chosen(folder: Path, rows: Pairs) -> tuple[str, ...]:
    """Choose descriptions by the NDCG of cold books among the training interactions of the table.

    So none of its cold books takes part, and no interaction that it holds out.
    """
    known, heldout = divided(rows, SEED + 1)
    data = ingested(known, heldout, folder / "choice")
    is_cold = data.counts("items") == 0
    found: dict[tuple[str, ...], float] = {}
    for by in CHOICES:
        model = trained(data, by, folder / "-".join(by))
        found[by] = measured(_of_network(model, data, is_cold), is_cold, data)[f"ndcg@{K}"]
        print(f"validation NDCG@{K} of cold books by {' and '.join(by)}: {found[by]:.4f}", flush=True)
    return max(found, key=found.__getitem__)


def _of_network(model: Model, data: Dataset, ranked: NDArray[np.bool_]) -> Lists:
    output = model.network.outputs["next"]
    rules = Rules(banned_L=torch.from_numpy(~ranked)).within(len(ranked), output)
    histories = Histories(model.network, data, "heldout")
    for rows, truth in truths(data, "items", "heldout", K):
        best = histories.best("next", rows, K, exclude_seen=True, rules=rules, scores=False)
        yield truth, best[1].cpu().numpy()


def _of_scores(data: Dataset, ranked: NDArray[np.bool_], scores_of: Any) -> Lists:
    """Rank cold books, which nobody has seen, by scores [E, items] of some rows of the dataset."""
    places = np.flatnonzero(ranked)
    for rows, truth in truths(data, "items", "heldout", K):
        scores = scores_of(data.sparse("items", rows))[:, places]
        yield truth, places[np.argsort(-scores, axis=1, kind="stable")[:, :K]]


def _random(width: int) -> Any:
    random = np.random.default_rng(0)
    return lambda history: random.random((history.num_examples, width))


def _popular(data: Dataset) -> Any:
    counts = data.counts("items")
    # The numbers of the books follow their popularity elsewhere, so equal counts are in random order.
    scores = counts + np.random.default_rng(0).random(len(counts))
    return lambda history: np.broadcast_to(scores, (history.num_examples, len(scores)))


def _content(data: Dataset, names: tuple[str, ...]) -> Any:
    """The cosine between an item's attributes and those of the user's items, rare ones counting more."""
    attributes = data.described_rows("items", names)
    width = sum(data.field("items").described[name] for name in names)
    matrix = _csr(attributes, width)
    rarity = np.log(matrix.shape[0] / np.maximum(1, np.bincount(matrix.indices, minlength=width)))
    weighted = matrix @ diags(rarity)
    lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1))).ravel()
    unit = diags(1 / np.maximum(lengths, 1e-12)) @ weighted
    return lambda history: np.asarray((_csr(history, matrix.shape[0]) @ unit @ unit.T).todense())


def _csr(batch: SparseBatch, width: int) -> csr_matrix:
    numbers = batch.values_or_ones().numpy(), batch.indices.numpy(), batch.indptr.numpy()
    return csr_matrix(numbers, shape=(batch.num_examples, width))


def _row(name: str, found: list[Mapping[str, float]] | list[Metrics]) -> None:
    cells = [f"{each[metric]:.4f}" for each in found for metric in (f"recall@{K}", f"ndcg@{K}")]
    print(f"| {name} | {' | '.join([*cells, *['-'] * (6 - len(cells))])} |", flush=True)
