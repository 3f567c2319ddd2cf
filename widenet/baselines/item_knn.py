"""Item-based nearest neighbours under the cosine of co-occurrence."""

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.cooccurrence import cooccurrences, ranges
from widenet.baselines.lists import Lists
from widenet.sparse import SparseBatch

NUM_NEIGHBOURS = 100

_ONE = 2**40
"""The number 1 in the fixed-point form of similarities, so that their sums have no order."""


def item_knn(history: SparseBatch, width: int, num_neighbours: int = NUM_NEIGHBOURS) -> Lists:
    """Return the lists of item-based nearest neighbours.

    An item's score is the sum of its similarities to the user's items, over those that have it among their
    nearest neighbours: Deshpande and Karypis, "Item-based top-N recommendation algorithms", ACM TOIS 22(1),
    2004. The similarity is the cosine of the items' users. Of equal items the lower one counts as better.
    Lists end where no similarity is left. Nothing of size width x width is stored.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        num_neighbours: Neighbours of each item.
    """
    indptr, neighbours, similarities = _neighbours(history, width, num_neighbours)

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        items = entries.indices.numpy().astype(np.int64)
        places, sizes = ranges(indptr, items)
        users = np.repeat(entries.example_of_entry().numpy(), sizes)
        pairs, inverse = np.unique(users * width + neighbours[places], return_inverse=True)
        scores = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(scores, inverse, similarities[places])
        known = seen.example_of_entry().numpy() * width + seen.indices.numpy().astype(np.int64)
        fresh = ~np.isin(pairs, known)
        return _best(pairs[fresh], scores[fresh], width, entries.num_examples, k)

    return lists


def _neighbours(
    history: SparseBatch, width: int, num_neighbours: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the neighbours of each item with their similarities, as CSR over items."""
    counts = np.bincount(history.indices.numpy(), minlength=width)
    found: list[NDArray[np.int64]] = []
    weights: list[NDArray[np.int64]] = []
    for item, (others, together) in enumerate(cooccurrences(history, width)):
        kept = others != item
        others, together = others[kept], together[kept]
        cosine = together / np.sqrt(counts[item] * counts[others].astype(np.float64))
        units = np.rint(cosine * _ONE).astype(np.int64)
        best = np.argsort(-units, kind="stable")[:num_neighbours]
        found.append(others[best])
        weights.append(units[best])
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in found])])
    return indptr, np.concatenate(found), np.concatenate(weights)


def _best(
    pairs: NDArray[np.int64], scores: NDArray[np.int64], width: int, num_examples: int, k: int
) -> NDArray[np.int64]:
    """Return the k pairs with the highest scores of each example, int64 [E, k]; -1 after the last."""
    users, items = np.divmod(pairs, width)
    order = np.lexsort((items, -scores, users))
    users, items = users[order], items[order]
    first = np.searchsorted(users, np.arange(num_examples))
    ranks = np.arange(len(users)) - first[users]
    top_EK = np.full((num_examples, k), -1, dtype=np.int64)
    kept = ranks < k
    top_EK[users[kept], ranks[kept]] = items[kept]
    return top_EK
