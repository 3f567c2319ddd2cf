"""SLIM: a linear item-to-item model with few weights for each item, in closed form."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widenet.baselines.cooccurrence import cooccurrences, ranges
from widenet.baselines.evaluated_lists import Lists
from widenet.baselines.item_weights import ONE, ItemWeights, nearest
from widenet.errors import CapacityError
from widenet.sparse import SparseBatch

L2 = 50.0
NUM_NEIGHBOURS = 100
MOST_PAIRS = 400_000_000
"""Pairs of items of which SLIM keeps the number of users, in 8 bytes each."""


def slim(history: SparseBatch, width: int, l2: float = L2, num_neighbours: int = NUM_NEIGHBOURS) -> Lists:
    """Return the lists of SLIM, with weights to each item from its nearest neighbours.

    Ning and Karypis, "SLIM: sparse linear methods for top-N recommender systems", ICDM 2011, with their
    selection of features (fsSLIM), but with an l2 penalty alone, so that the weights have a closed form. With
    G = X'X, those to item j from its neighbours N are (G[N, N] + l2 I)^-1 G[N, j]. Where all other items are
    neighbours, they are EASE's. All in float64, with one thread; scores are sums of whole numbers.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        l2: The l2 penalty.
        num_neighbours: Neighbours of each item.

    Raises:
        CapacityError: There may be too many pairs of items.
    """
    pairs = most_pairs(history, width)
    if pairs > MOST_PAIRS:
        raise CapacityError(
            f"must have at most {MOST_PAIRS:,} pairs of items for SLIM", option="history", value=pairs
        )
    near, users = nearest(history, width, num_neighbours), _UsersOfBoth(history, width)
    weights = []
    for item in range(width):
        neighbours = near.others[near.indptr[item] : near.indptr[item + 1]]
        gram_MM = torch.from_numpy(users.among(np.append(neighbours, item)))
        weights.append(_weights(gram_MM, l2))
    order = np.argsort(near.others, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(near.others, minlength=width))])
    targets = np.repeat(np.arange(width), np.diff(near.indptr))
    return ItemWeights(indptr, targets[order], np.concatenate(weights)[order]).lists


def most_pairs(history: SparseBatch, width: int) -> int:
    """Return a bound of the number of pairs of items that occur together."""
    return min(int(history.counts().square().sum()), width**2)


def _weights(gram_MM: Tensor, l2: float) -> NDArray[np.int64]:
    """Return the weights of all items but the last to the last one, in units of 1 / `ONE`."""
    gram_NN, target_N1 = gram_MM[:-1, :-1].clone(), gram_MM[:-1, -1:]
    gram_NN.diagonal().add_(l2)
    weights_N1 = torch.cholesky_solve(target_N1, torch.linalg.cholesky(gram_NN))
    units_N: NDArray[np.int64] = np.rint(weights_N1[:, 0].numpy() * ONE).astype(np.int64)
    return units_N


class _UsersOfBoth:
    """How many users have both of two items, for all pairs of items."""

    def __init__(self, history: SparseBatch, width: int) -> None:
        # The system gives memory for the part of these arrays that is filled, and no more.
        others, users = (np.empty(most_pairs(history, width), dtype=np.int32) for _ in range(2))
        indptr = [0]
        for items, counts in cooccurrences(history, width):
            own = slice(indptr[-1], indptr[-1] + len(items))
            others[own], users[own] = items, counts
            indptr.append(own.stop)
        self._indptr, self._others, self._users = np.array(indptr), others[: indptr[-1]], users[: indptr[-1]]
        self._place_L = np.full(width, -1)

    def among(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers for all pairs of some items, float64 [M, M]."""
        numbers_MM = np.zeros((len(items), len(items)))
        self._place_L[items] = np.arange(len(items))
        places, sizes = ranges(self._indptr, items)
        rows, columns = np.repeat(np.arange(len(items)), sizes), self._place_L[self._others[places]]
        kept = columns >= 0
        numbers_MM[rows[kept], columns[kept]] = self._users[places[kept]]
        self._place_L[items] = -1
        return numbers_MM
