"""Cuts the latest items of each user off the training part of Gowalla, and compares that part with others.

The published files have no times, but the lines of the published `train.txt` are in order of time. The copy
that the other benchmarks read has ascending items, so the published file must be named.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from benchmarks.places import DATA
from widenet import Dataset, ingest
from widenet.data.manifest import Part
from widenet.errors import DataError

_POPULAR = 100
"""Interactions of a popular item."""
_DRAWN = 2000
"""Users whose held-out items are compared with each other."""


def cut_latest(ordered: Path, share: float, folder: Path) -> Dataset:
    """Make the dataset "latest" in a folder: the last items of each line, rounded up, are held out.

    Args:
        ordered: The published `train.txt`.
        share: Share of each user's items that is held out.
        folder: Where to make it.

    Raises:
        DataError: The file has other users or items than the copy.
    """
    known, lines = dict(_lines(DATA / "gowalla" / "train.txt")), dict(_lines(ordered))
    if {user: sorted(items) for user, items in lines.items()} != known:
        raise DataError(f"{ordered} must have the users and items of the published training part.")
    parts = folder / "latest-train.txt", folder / "latest-heldout.txt"
    with parts[0].open("w") as train, parts[1].open("w") as heldout:
        for user, items in lines.items():
            first = len(items) - math.ceil(share * len(items))
            print(user, *items[:first], file=train)
            print(user, *items[first:], file=heldout)
    return ingest([parts[0]], folder / "latest", heldout=parts[1], format="adjacency")


def _lines(path: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield each user of a file with its items."""
    for line in path.read_text().splitlines():
        user, *items = map(int, line.split())
        yield user, items


def print_resemblance(parts: dict[str, tuple[Dataset, Part]]) -> None:
    """Print in which ways the held-out items of some parts differ; no model has a say.

    Similarity is the cosine of two items over the users that have them in training, averaged over pairs of a
    user, then over users.
    """
    print("| part | popular items | others | 5 to 95 % of popular items | similarity |")
    print("|---|---|---|---|---|")
    for name, (dataset, part) in parts.items():
        held = dataset.counts("items", part)
        total = dataset.counts("items") + held
        popular = total >= _POPULAR
        of_popular, of_others = (held[some].sum() / total[some].sum() for some in (popular, ~popular))
        low, high = np.quantile(held[popular] / total[popular], [0.05, 0.95])
        shares = f"{of_popular:.1%} | {of_others:.1%} | {low:.1%} to {high:.1%}"
        print(f"| {name} | {shares} | {_similarity(dataset, part):.4f} |", flush=True)


def _similarity(dataset: Dataset, part: Part) -> float:
    """Return the mean similarity of the held-out items of some users, drawn at random."""
    able = np.flatnonzero(dataset.entry_counts("items", slice(None), part) >= 2)
    drawn = np.random.default_rng(0).permutation(able)[:_DRAWN]
    users_of = _matrix(dataset, "train").T.tocsr()
    means = []
    for items in np.split(*_entries(dataset, drawn, part)):
        rows = users_of[items]
        lengths = np.sqrt(np.maximum(rows.sum(axis=1).A1, 1))
        cosines = (rows @ rows.T).toarray() / lengths / lengths[:, None]
        np.fill_diagonal(cosines, 0)
        means.append(cosines.sum() / (len(items) * (len(items) - 1)))
    return float(np.mean(means))


def _matrix(dataset: Dataset, part: Part) -> csr_matrix:
    """Return the interactions of a part, float64 [users, items]."""
    batch = dataset.sparse("items", slice(None), part)
    shape = dataset.num_examples, dataset.field("items").width
    return csr_matrix((np.ones(batch.num_entries), batch.indices.numpy(), batch.indptr.numpy()), shape)


def _entries(dataset: Dataset, rows: np.ndarray, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Return the items of some users, one user after the other, and where the second and later ones begin."""
    batch = dataset.sparse("items", rows, part)
    return batch.indices.numpy(), batch.indptr.numpy()[1:-1]
