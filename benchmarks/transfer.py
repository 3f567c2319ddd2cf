"""Measures how many labels a head of 16 classes needs on vectors that were trained without labels."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.places import DATA, workplace
from widenet import Dataset, Model, train
from widenet.data.lists import dataset_from_lists
from widenet.predict.top_k import top_k
from widenet.sparse import SparseBatch

CLASSES, UNITS, BATCH = 16, 128, 64
LABELS = (40, 100, 200, 400, 500, 800, 1000, 2000, 4000)
FEWER = 5
"""How many times as many labels the others may have."""
STEPS = 100
"""Steps of a training. Its only epoch has every labelled user equally often."""
RATES = (0.01, 0.03, 0.1)
"""Learning rates, of which the best on other users is chosen for every network and number of labels."""
SAMPLES = 3
"""Samples of labelled users; accuracies are means over them."""
CHECKED, TESTED = 1000, 3000
"""Labelled users that choose the learning rate, and that tell the accuracy."""
FEWEST_BOOKS = 5

HISTORY = {"name": "history", "kind": "input", "field": "items"}
TASTE = {"name": "taste", "units": UNITS, "activation": "linear", "bias": False}
DRAWN = {"initializer": {"kind": "gaussian", "deviation": 0.1}}
AUTHOR = {"name": "author", "kind": "output", "field": "author"}
UNLABELLED: dict[str, Any] = {
    "layers": [
        HISTORY | {"denoise": 0.4, "popularity_damping": 0.25},
        TASTE | DRAWN,
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "loss": {"kind": "cross_entropy", "targets": "sum"},
            "cosine": {"temperature": 0.1},
            "weights": {"layer": "taste", "transposed": True},
        },
    ]
}
READ = HISTORY | {"scale": "rsqrt"}
DAMPED = READ | {"popularity_damping": 0.25}
BY_COSINE = AUTHOR | {"cosine": {"temperature": 0.2}}
NETWORKS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "from nothing": ([READ, TASTE | DRAWN, AUTHOR], False),
    "logistic regression": ([READ, AUTHOR], False),
    "vectors, frozen": ([DAMPED, TASTE | {"frozen": True}, BY_COSINE], True),
    "vectors, trained further": ([DAMPED, TASTE, BY_COSINE], True),
}
"""Layers of every network, and whether it begins with the vectors."""


@dataclass(frozen=True)
class Readers:
    """The books of some users, without those of the authors, and the author of whom each has most."""

    books: Sequence[Sequence[int]]
    authors: NDArray[np.int64]

    def some(self, start: int, stop: int) -> "Readers":
        """Return the users from start to stop - 1."""
        return Readers(self.books[start:stop], self.authors[start:stop])


def run() -> None:
    """Print the accuracy of every network by the number of labels, and who needs how many."""
    width, unlabelled, labelled = readers()
    checked, tested = labelled.some(0, CHECKED), labelled.some(CHECKED, CHECKED + TESTED)
    pool = labelled.some(CHECKED + TESTED, len(labelled.books))
    unlabelled += pool.books
    with workplace() as folder:
        data = dataset_from_lists(folder / "unlabelled", unlabelled, width=width)
        training = {"epochs": 5, "batch_size": 256, "optimizer": {"kind": "adam", "learning_rate": 0.01}, "schedule": "cosine"}  # fmt: skip # noqa: E501
        train(UNLABELLED, training, data, folder / "vectors")
        most = Counter(tested.authors.tolist()).most_common(1)[0][1] / TESTED
        print(
            f"\ngoodbooks-10k to_read: vectors of {width:,} books from {len(unlabelled):,} users without"
            f" labels; accuracy on {TESTED:,} other users, {most:.4f} for the largest class\n"
        )
        print(f"| labels | {' | '.join(NETWORKS)} |\n|---|{'---|' * len(NETWORKS)}")
        found: dict[int, dict[str, float]] = {}
        for number in LABELS:
            found[number] = dict(_row(number, pool, width, checked, tested, folder))
            print(
                f"| {number:,} | {' | '.join(f'{each:.4f}' for each in found[number].values())} |", flush=True
            )
    print(f"\n| labels | best without vectors | labels / {FEWER} | frozen vectors |\n|---|---|---|---|")
    for number in LABELS:
        if number // FEWER in found:
            fewer, best = number // FEWER, max(found[number][name] for name in list(NETWORKS)[:2])
            print(f"| {number:,} | {best:.4f} | {fewer:,} | {found[fewer]['vectors, frozen']:.4f} |")


def readers() -> tuple[int, list[Sequence[int]], Readers]:
    """Return the number of books, the books of users without labels, and the users with labels.

    The classes are the first authors that most users want to read. Their books are left out.
    """
    folder = DATA / "goodbooks-10k"
    with (folder / "books.csv").open(encoding="utf-8", newline="") as file:
        first = {row["id"]: row["authors"].partition(",")[0] for row in csv.DictReader(file)}
    with (folder / "to_read.csv").open(encoding="utf-8", newline="") as file:
        pairs = [(row["user_id"], row["book_id"]) for row in csv.DictReader(file)]
    users = Counter(author for _, author in {(user, first[book]) for user, book in pairs})
    classes = {author: place for place, (author, _) in enumerate(users.most_common(CLASSES))}
    items: dict[str, int] = {}
    books: dict[str, list[int]] = {}
    wanted: dict[str, Counter[int]] = {}
    for user, book in pairs:
        if first[book] in classes:
            wanted.setdefault(user, Counter())[classes[first[book]]] += 1
        else:
            books.setdefault(user, []).append(items.setdefault(book, len(items)))
    able = [user for user in sorted(books, key=int) if len(books[user]) >= FEWEST_BOOKS]
    order = np.random.default_rng(0).permutation(len(able)).tolist()
    without, others = order[: len(able) // 2], order[len(able) // 2 :]
    labels = {user: _most_wanted(wanted.get(user, Counter())) for user in able}
    chosen = [able[place] for place in others if labels[able[place]] is not None]
    authors = np.array([labels[user] for user in chosen])
    unlabelled: list[Sequence[int]] = [sorted(books[able[place]]) for place in without]
    return len(items), unlabelled, Readers([sorted(books[user]) for user in chosen], authors)


def _most_wanted(wanted: Counter[int]) -> int | None:
    """Return the author of whom a user has most books; None if there is none, or several."""
    best = wanted.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else None


def _row(
    number: int, pool: Readers, width: int, checked: Readers, tested: Readers, folder: Path
) -> Iterator[tuple[str, float]]:
    """Yield the mean accuracy of every network with a number of labels."""
    samples = []
    for seed in range(SAMPLES):
        rows = _sample(pool.authors, number, seed) * max(1, round(STEPS * BATCH / number))
        books, labels = [pool.books[row] for row in rows], [[int(pool.authors[row])] for row in rows]
        place = folder / f"{number}-{seed}"
        samples.append(dataset_from_lists(place, books, width=width, sparse={"author": labels}))
    for name, (layers, has_vectors) in NETWORKS.items():
        start = folder / "vectors" if has_vectors else None
        found = [_accuracy({"layers": layers}, samples, rate, start, checked, tested) for rate in RATES]
        yield name, max(found, key=itemgetter(0))[1]


def _sample(authors: NDArray[np.int64], number: int, seed: int) -> list[int]:
    """Return as many users as asked for: the first of each class in a random order, and others in turn."""
    order = np.random.default_rng(seed).permutation(len(authors))
    every = [int(order[np.argmax(authors[order] == each)]) for each in range(CLASSES)]
    others = [row for row in order.tolist() if row not in every]
    return [*every, *others[: number - CLASSES]]


def _accuracy(
    network: Mapping[str, Any],
    samples: Sequence[Dataset],
    rate: float,
    start: Path | None,
    checked: Readers,
    tested: Readers,
) -> tuple[float, float]:
    """Train on every sample, and return the mean shares of both kinds of users that are right."""
    found = []
    for seed, data in enumerate(samples):
        training = {
            "epochs": 1,
            "batch_size": BATCH,
            "seed": seed,
            "optimizer": {"kind": "adam", "learning_rate": rate},
            "schedule": "cosine",
            "evaluation": None,
        }
        out = data.path.with_name("run")
        model = train(network, training, data, out, overwrite=True, start_from=start)
        found.append((_share(model, checked), _share(model, tested)))
    by_checked, by_tested = np.mean(found, axis=0).tolist()
    return by_checked, by_tested


def _share(model: Model, readers: Readers) -> float:
    """Return the share of users whose author a network tells."""
    lengths = [len(books) for books in readers.books]
    batch = SparseBatch(
        torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])),
        torch.from_numpy(np.concatenate(readers.books).astype(np.int64)),
        None,
    )
    units = top_k(model.network, {"items": batch}, "author", 1)[1]
    return float((units.numpy()[:, 0] == readers.authors).mean())
