"""Further metrics: beyond accuracy, of rare labels, and of groups of users and items."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widenet.errors import OptionError
from widenet.metrics.ranking import Metrics, RankingMetrics, check_ks, hits

_BIT = 2**20
"""One bit of novelty in whole units, so that sums have no order."""
_UNIT = 2**26
"""The inverse propensity 1 in whole units, likewise."""
_HEAD_SHARE = 3
"""The head has one part in so many of all training entries."""
_QUARTER = 4
_LARGEST_A = 1.0
_SMALLEST_B, _LARGEST_B = 0.1, 100.0
"""Bounds of A and B, so that sums over a block fit in 64 bits; published ones are 0.5 to 0.6, and 0.4 to 2.6.

An inverse propensity is below 1 + C B^-A, so below 2^8 for up to 2^32 points.
"""


class BeyondAccuracy:
    """Accumulates novelty, diversity and the Gini index of the recommended items, over blocks of examples.

    The results do not depend on the blocks or on the order of examples, to the bit. Memory is 8 bytes for
    each k and item. docs/metrics.md has the formulas and their sources.

    Args:
        ks: The list lengths to measure.
        popularity: Training interactions of each item, int64 [width].
    """

    def __init__(self, ks: Sequence[int], popularity: NDArray[np.int64]) -> None:
        self._ks = ks
        self._popularity = popularity
        self._counts = {k: np.zeros(len(popularity), dtype=np.int64) for k in ks}
        self._num_examples = 0

    def add(
        self, top_EK: NDArray[np.int64], truth_indptr: NDArray[np.int64], truth_indices: NDArray[np.int64]
    ) -> None:
        """Count a block of examples; see `RankingMetrics.add`."""
        top_EK = top_EK[np.diff(truth_indptr) > 0]
        self._num_examples += len(top_EK)
        for k, counts in self._counts.items():
            recommended = top_EK[:, :k]
            np.add.at(counts, recommended[recommended >= 0], 1)

    def result(self) -> dict[str, float]:
        """Return novelty, diversity and the Gini index at every k."""
        values = {}
        for k, counts in self._counts.items():
            values[f"novelty@{k}"] = self._novelty(counts)
            values[f"diversity@{k}"] = self._diversity(counts)
            values[f"gini@{k}"] = _gini(counts)
        return values

    def _novelty(self, counts: NDArray[np.int64]) -> float:
        """The mean bits of information of a recommended item; one without interactions counts as with one."""
        shares = np.maximum(self._popularity, 1) / max(1, int(self._popularity.sum()))
        units = np.rint(-np.log2(shares) * _BIT).astype(np.int64)
        return int(counts @ units) / (_BIT * max(1, int(counts.sum())))

    def _diversity(self, counts: NDArray[np.int64]) -> float:
        """The share of recommendations that another example's list lacks, over all pairs of examples."""
        asked = int(counts.sum()) * (self._num_examples - 1)
        return 1 - int(counts @ (counts - 1)) / asked if asked > 0 else 0.0


def _gini(counts: NDArray[np.int64]) -> float:
    """The Gini index of counts: 0 if all are equal, 1 - 1 / width if one item has all."""
    width, total = len(counts), int(counts.sum())
    ranks = 2 * np.arange(1, width + 1) - width - 1
    return int(ranks @ np.sort(counts)) / (width * total) if total else 0.0


@dataclass(frozen=True)
class Propensity:
    """The model of how likely a true label is to be known, with its two constants.

    A label of n among N training points has the inverse propensity 1 + C (n + B)^-A with C = (log N - 1)
    (B + 1)^A: Jain, Prabhu and Varma, "Extreme multi-label loss functions for recommendation, tagging,
    ranking & other missing label applications", KDD 2016, section 4.

    Raises:
        OptionError: A is not above 0 and at most 1, or B not from 0.1 to 100.
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        is_sound = 0 < self.a <= _LARGEST_A and _SMALLEST_B <= self.b <= _LARGEST_B
        rule = f"must be A above 0 and up to {_LARGEST_A:g}, and B from {_SMALLEST_B:g} to {_LARGEST_B:g}"
        OptionError.require(is_sound, rule, option="propensity", value=(self.a, self.b))

    @classmethod
    def of(cls, numbers: Sequence[float | str]) -> "Propensity":
        """Make it of A and B as numbers or texts; raises OptionError."""
        try:
            a, b = (float(each) for each in numbers)
        except (TypeError, ValueError):
            rule = "must be two numbers, A and B"
            raise OptionError(rule, option="propensity", value=numbers) from None
        return cls(a, b)

    def inverse(self, counts: NDArray[np.int64], num_examples: int) -> NDArray[np.float64]:
        """The inverse propensity of each label, at least 1.

        Args:
            counts: Training points with each label, int64 [width].
            num_examples: Number of training points.
        """
        scale = max(0.0, math.log(max(1, num_examples)) - 1) * (self.b + 1) ** self.a
        inverse: NDArray[np.float64] = 1 + scale * (counts + self.b) ** -self.a
        return inverse


class PropensityScored:
    """Accumulates propensity-scored precision over blocks of examples: psp@k.

    Its results do not depend on the blocks or on the order of examples, to the bit. An example adds the
    inverse propensities of its hits among the first k; the sum over all examples is divided by the largest
    that these labels allow. docs/metrics.md has the formula.

    Args:
        ks: The list lengths to measure.
        inverse: Inverse propensity of each item, float64 [width].
    """

    def __init__(self, ks: Sequence[int], inverse: NDArray[np.float64]) -> None:
        self._ks = check_ks(ks)
        self._units = np.rint(inverse * _UNIT).astype(np.int64)
        self._found, self._best = dict.fromkeys(self._ks, 0), dict.fromkeys(self._ks, 0)

    def add(
        self, top_EK: NDArray[np.int64], truth_indptr: NDArray[np.int64], truth_indices: NDArray[np.int64]
    ) -> None:
        """Count a block of examples; see `RankingMetrics.add`."""
        owners = np.repeat(np.arange(len(top_EK)), np.diff(truth_indptr))
        hit_EK = hits(top_EK, truth_indptr, truth_indices, len(self._units))
        gain_EK = np.where(hit_EK, self._units[top_EK], 0)
        order = np.lexsort((-self._units[truth_indices], owners))
        ranks = np.arange(len(owners)) - truth_indptr[owners]
        best = self._units[truth_indices[order]]
        for k in self._ks:
            self._found[k] += int(gain_EK[:, :k].sum())
            self._best[k] += int(best[ranks < k].sum())

    def result(self) -> dict[str, float]:
        """Return psp@k for every k; 0 if no example had a true item."""
        return {f"psp@{k}": self._found[k] / max(1, self._best[k]) for k in self._ks}


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
        self._means = {
            name: RankingMetrics(ks, popularity, totals=False) for name in (*self._users, *self._items)
        }

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
