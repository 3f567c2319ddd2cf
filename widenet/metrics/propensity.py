"""Propensity-scored precision, which counts a rare label that is found for more than a frequent one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widenet.errors import OptionError
from widenet.metrics.ranking import check_ks

_ONE = 2**26
"""The number 1 in whole units, so that sums have no order."""
_LARGEST_A = 1.0
_SMALLEST_B, _LARGEST_B = 0.1, 100.0
"""Bounds of A and B, so that sums over a block fit in 64 bits; published ones are 0.5 to 0.6, and 0.4 to 2.6.

An inverse propensity is below 1 + C B^-A, so below 2^8 for up to 2^32 points.
"""


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
        if not (0 < self.a <= _LARGEST_A and _SMALLEST_B <= self.b <= _LARGEST_B):
            rule = f"must be A above 0 and up to {_LARGEST_A:g}, and B from {_SMALLEST_B:g} to {_LARGEST_B:g}"
            raise OptionError(rule, option="propensity", value=(self.a, self.b))

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
        self._units = np.rint(inverse * _ONE).astype(np.int64)
        self._found, self._best = dict.fromkeys(self._ks, 0), dict.fromkeys(self._ks, 0)

    def add(
        self, top_EK: NDArray[np.int64], truth_indptr: NDArray[np.int64], truth_indices: NDArray[np.int64]
    ) -> None:
        """Count a block of examples; see `RankingMetrics.add`."""
        owners = np.repeat(np.arange(len(top_EK)), np.diff(truth_indptr))
        width = len(self._units)
        pairs_EK = np.arange(len(top_EK))[:, None] * width + top_EK
        hit_EK = np.isin(pairs_EK, owners * width + truth_indices) & (top_EK >= 0)
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
