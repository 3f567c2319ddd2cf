"""Mean metrics by groups of users and of items."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from widenet.metrics.ranking import MeanMetrics, Metrics

_HEAD_SHARE = 3
"""The head has one part in so many of all training entries."""
_QUARTER = 4


class GroupedMetrics:
    """Accumulates the means for new, casual and heavy users, and for head and tail items.

    New and heavy users are the quarters of the evaluated users with the shortest and the longest histories,
    with all users of the same length; casual ones are the others. Head items are the most popular ones that
    together have a third of the training entries; a group of items has the hits and true items that are in
    it.

    Args:
        ks: The list lengths to measure.
        popularity: Training interactions of each item, int64 [width].
        rows: Rows of the evaluated users in the dataset, int64 [E], ascending.
        lengths: Known items of each of them, int64 [E].
    """

    def __init__(
        self,
        ks: Sequence[int],
        popularity: NDArray[np.int64],
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self._rows, self._lengths, self._popularity = rows, lengths, popularity
        self._users = _groups_of_users(lengths)
        self._items = _groups_of_items(popularity)
        self._means = {name: MeanMetrics(ks, len(popularity)) for name in (*self._users, *self._items)}

    def add(
        self,
        top_EK: NDArray[np.int64],
        truth_indptr: NDArray[np.int64],
        truth_indices: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> None:
        """Count a block of examples; see `RankingMetrics.add`."""
        examples = np.repeat(np.arange(len(top_EK)), np.diff(truth_indptr))
        positions = np.searchsorted(self._rows, rows)
        kept = {name: is_in[positions][examples] for name, is_in in self._users.items()}
        kept |= {name: is_in[truth_indices] for name, is_in in self._items.items()}
        for name, entries in kept.items():
            counts = np.bincount(examples[entries], minlength=len(top_EK))
            self._means[name].add(top_EK, np.concatenate([[0], np.cumsum(counts)]), truth_indices[entries])

    def result(self) -> dict[str, Metrics]:
        """Return the means of each group, with the number of its users that counted; none without one.

        "least" and "most" are the fewest and the most known items of its users, or interactions of its items.
        """
        counts = {name: self._lengths[is_in] for name, is_in in self._users.items()}
        counts |= {name: self._popularity[is_in] for name, is_in in self._items.items()}
        found = {name: means.result() for name, means in self._means.items() if means.num_examples}
        for name, means in found.items():
            means |= {"least": int(counts[name].min()), "most": int(counts[name].max())}
        return found


def _groups_of_users(lengths: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Which users each group has."""
    ordered = np.sort(lengths)
    size = -(-len(ordered) // _QUARTER)
    is_new = lengths <= ordered[size - 1] if size else lengths < 0
    is_heavy = ~is_new & (lengths >= ordered[-size]) if size else is_new
    return {"new users": is_new, "casual users": ~is_new & ~is_heavy, "heavy users": is_heavy}


def _groups_of_items(popularity: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
    """Which items each group has; of equally popular items, the lower ones come first into the head."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    is_head = np.zeros(len(popularity), dtype=np.bool_)
    is_head[order] = before * _HEAD_SHARE < popularity.sum()
    return {"head items": is_head, "tail items": ~is_head}
