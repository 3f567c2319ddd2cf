"""Sparse weights between items, and the lists that they give."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.cooccurrence import cooccurrences, ranges
from widenet.sparse import SparseBatch

ONE = 2**40
"""The number 1 in the fixed-point form of weights, so that their sums have no order."""


@dataclass(frozen=True)
class ItemWeights:
    """What each item of a history adds to the scores of other items, as CSR.

    Attributes:
        indptr: The entries of each item, int64 [L + 1].
        others: The other items, int64 [Z].
        weights: What they get, in units of 1 / `ONE`, int64 [Z].
    """

    indptr: NDArray[np.int64]
    others: NDArray[np.int64]
    weights: NDArray[np.int64]

    def lists(self, entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        """Return the items with the largest sums of weights, int64 [E, k]; see `lists.Lists`.

        Of equal items the lower one counts as better. A list ends where no score above 0 is left.
        """
        width, items = len(self.indptr) - 1, entries.indices.numpy().astype(np.int64)
        places, sizes = ranges(self.indptr, items)
        users = np.repeat(entries.example_of_entry().numpy(), sizes)
        pairs, inverse = np.unique(users * width + self.others[places], return_inverse=True)
        scores = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(scores, inverse, self.weights[places])
        known = seen.example_of_entry().numpy() * width + seen.indices.numpy().astype(np.int64)
        able = ~np.isin(pairs, known) & (scores > 0)
        return _best(pairs[able], scores[able], width, entries.num_examples, k)


def nearest(history: SparseBatch, width: int, num_neighbours: int) -> ItemWeights:
    """Return the nearest neighbours of each item with their similarities, the most similar first.

    The similarity is the cosine of the items' users. Of equal items the lower one counts as nearer.
    """
    counts = np.bincount(history.indices.numpy(), minlength=width)
    neighbours: list[NDArray[np.int64]] = []
    similarities: list[NDArray[np.int64]] = []
    for item, (others, together) in enumerate(cooccurrences(history, width)):
        kept = others != item
        others, together = others[kept], together[kept]
        cosine = together / np.sqrt(counts[item] * counts[others].astype(np.float64))
        units = np.rint(cosine * ONE).astype(np.int64)
        best = np.argsort(-units, kind="stable")[:num_neighbours]
        neighbours.append(others[best])
        similarities.append(units[best])
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in neighbours])])
    return ItemWeights(indptr, np.concatenate(neighbours), np.concatenate(similarities))


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
