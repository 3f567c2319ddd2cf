"""Metrics beyond accuracy: how new, how different and how evenly spread the recommendations are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ONE = 2**20
"""One bit of novelty in whole units, so that sums have no order."""


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
        units = np.rint(-np.log2(shares) * _ONE).astype(np.int64)
        return int(counts @ units) / (_ONE * max(1, int(counts.sum())))

    def _diversity(self, counts: NDArray[np.int64]) -> float:
        """The share of recommendations that another example's list lacks, over all pairs of examples."""
        asked = int(counts.sum()) * (self._num_examples - 1)
        return 1 - int(counts @ (counts - 1)) / asked if asked > 0 else 0.0


def _gini(counts: NDArray[np.int64]) -> float:
    """The Gini index of counts: 0 if all are equal, 1 - 1 / width if one item has all."""
    width, total = len(counts), int(counts.sum())
    ranks = 2 * np.arange(1, width + 1) - width - 1
    return int(ranks @ np.sort(counts)) / (width * total) if total else 0.0
