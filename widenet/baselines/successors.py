"""The items that most often come right after a sequence's newest item."""

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.evaluated_lists import Lists, best_unseen
from widenet.sparse import SparseBatch


def successors(sequences: SparseBatch, width: int) -> Lists:
    """Return the lists of the items that most often follow the newest item, then of the most popular ones.

    The lists read histories in order.

    A Markov chain of first order: Ludewig and Jannach, "Evaluation of session-based recommendation
    algorithms", User Modeling and User-Adapted Interaction 28, 2018. Ties go to the lower item.

    Args:
        sequences: The training entries of all examples, in order of time.
        width: Number of items.
    """
    starts_I, following_P = _pairs(sequences, width)
    ranking = np.argsort(-np.bincount(sequences.indices.numpy(), minlength=width), kind="stable")

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        ends, items = entries.indptr.numpy(), entries.indices.numpy().astype(np.int64)

        def candidates(row: int, enough: int) -> NDArray[np.int64]:
            next_ones = following_P[:0]
            if ends[row] < ends[row + 1]:
                newest = items[ends[row + 1] - 1]
                next_ones = following_P[starts_I[newest] : starts_I[newest + 1]][:enough]
            others = ranking[: enough + len(next_ones)]
            return np.concatenate([next_ones, others[~np.isin(others, next_ones)]])

        return best_unseen(candidates, seen, k)

    return lists


def _pairs(sequences: SparseBatch, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first place of each item, int64 [width + 1], and what follows it, frequent ones first."""
    items, ends = sequences.indices.numpy().astype(np.int64), sequences.indptr.numpy()
    has_next = np.ones(len(items), dtype=bool)
    has_next[ends[1:][np.diff(ends) > 0] - 1] = False
    keys = items[:-1][has_next[:-1]] * width + items[1:][has_next[:-1]]
    pairs, counts = np.unique(keys, return_counts=True)
    first, second = np.divmod(pairs, width)
    order = np.lexsort((second, -counts, first))
    starts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=width))])
    return starts, second[order]
