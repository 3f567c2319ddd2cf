"""How many users have two items together."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from widenet.sparse import SparseBatch

_DENSE_SHARE = 8
"""Entries are counted in an array over all items if they are at least this share of them."""


def cooccurrences(history: SparseBatch, width: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield for each item the items of its users, ascending and itself among them, and the users of both.

    Args:
        history: The items of all examples, each once.
        width: Number of items.
    """
    user_indptr, items = history.indptr.numpy(), history.indices.numpy().astype(np.int64)
    users = history.example_of_entry().numpy()[np.argsort(items, kind="stable")]
    item_indptr = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=width))])
    for item in range(width):
        places, _ = ranges(user_indptr, users[item_indptr[item] : item_indptr[item + 1]])
        yield _counted(items[places], width)


def ranges(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the entries of some rows, one row after another, and the size of each row."""
    sizes = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(indptr[rows] - (ends - sizes), sizes)
    return places, sizes


def _counted(items: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct items, ascending, and how often each occurs."""
    if len(items) * _DENSE_SHARE < width:
        return np.unique(items, return_counts=True)
    counts = np.bincount(items, minlength=width)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]
