"""Ranking metrics: how well the k best items of every example match its true items."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from widenet.errors import DataError, OptionError
from widenet.metrics.resampling import intervals
from widenet.pictures.html import brief, table
from widenet.spec.metric_names import MEANS, TOTALS

_ONE = 2**53
"""The number 1 in the fixed-point form of sums."""

_HALF_BITS = 26
"""Bits of the lower half of a fixed-point number; halves are summed apart, so that 2^35 fit in 64 bits."""


def metric_names(ks: Sequence[int]) -> list[str]:
    """The names of all metrics at every k, such as "ndcg@20", in the order of `ks`."""
    return [f"{metric}@{k}" for k in ks for metric in MEANS + TOTALS]


def _is_length(k: object) -> bool:
    return isinstance(k, Integral) and not isinstance(k, bool) and int(k) >= 1


def checked_k(k: int) -> int:
    """Return a list length as an int; raise OptionError if it is not a whole number of at least 1."""
    OptionError.require(_is_length(k), "must be a whole number of at least 1", option="k", value=k)
    return int(k)


def check_ks(ks: Sequence[int]) -> list[int]:
    """Return list lengths as ints; raise OptionError unless they are distinct whole numbers of at least 1."""
    lengths = list(ks) if isinstance(ks, Iterable) and not isinstance(ks, str | bytes) else []
    is_sound = lengths and all(map(_is_length, lengths)) and len(set(lengths)) == len(lengths)
    rule = "must be whole numbers of at least 1 without repeats"
    OptionError.require(is_sound, rule, option="ks", value=ks)
    return [int(k) for k in lengths]


@dataclass(frozen=True, eq=False)
class UserMetrics:
    """The mean metrics of each user.

    Attributes:
        names: M names of metrics, such as "ndcg@20".
        rows: The users' rows in the dataset, int64 [E], ascending.
        values: float32 [E, M].
    """

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    values: NDArray[np.float32]

    def intervals(self, level: float) -> dict[str, tuple[float, float]]:
        """Return the confidence interval of the mean of each metric; see `resampling.intervals`."""
        lower, upper = (bounds.tolist() for bounds in intervals(self.values, level))
        return dict(zip(self.names, zip(lower, upper, strict=True), strict=True))


class Metrics(dict[str, float]):
    """Values by metric name, such as "ndcg@20"; a notebook shows them as a table.

    Attributes:
        users: The metrics of each user, if the evaluation kept them.
        intervals: Lower and upper bound of the confidence interval of each mean; empty unless asked for.
        baselines: The metrics of baselines by name; empty unless asked for.
        groups: The means of groups of users and items by name; empty unless asked for.
        num_seen: Number of true items that cannot be found because known items are left out; None if these
            are ranked.
    """

    users: UserMetrics | None = None
    num_seen: int | None = None

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.intervals: dict[str, tuple[float, float]] = {}
        self.baselines: dict[str, Metrics] = {}
        self.groups: dict[str, Metrics] = {}

    def _repr_html_(self) -> str:
        """A table with a row for each metric and a column for each k; metrics without a k come last."""
        ks = list(dict.fromkeys(name.partition("@")[2] for name in self if "@" in name))
        names = list(dict.fromkeys(name.partition("@")[0] for name in self if "@" in name))
        rows = [
            [name, *(f"{self[f'{name}@{k}']:.4f}" if f"{name}@{k}" in self else "" for k in ks)]
            for name in names
        ]
        rows += [
            [name, brief(value), *[""] * (len(ks) - 1)] for name, value in self.items() if "@" not in name
        ]
        return table(["", *(f"@{k}" for k in ks)], rows)


class RankingMetrics:
    """Accumulates ranking metrics over blocks of examples.

    The results do not depend on the blocks or on the order of examples, to the bit: means are summed in
    53-bit fixed point. Memory is one byte for each k and item, whatever the number of examples. Examples
    without a true item do not count. docs/metrics.md has the formulas and their sources.

    Attributes:
        num_examples: Number of examples that counted.

    Args:
        ks: The list lengths to measure, distinct and each at least 1.
        popularity: Training interactions of each item, int64 [width].
        totals: Whether to compute the totals over all recommendations beside the means over examples.

    Raises:
        OptionError: `ks` breaks its rule.
    """

    def __init__(self, ks: Sequence[int], popularity: NDArray[np.int64], totals: bool = True) -> None:
        self._ks = ks = check_ks(ks)
        self.num_examples, self._popularity = 0, popularity
        self._sums = {f"{metric}@{k}": 0 for k in ks for metric in MEANS}
        self._users: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
        self._recommended = {k: np.zeros(len(popularity), dtype=np.bool_) for k in ks if totals}
        self._num_recommendations = dict.fromkeys(ks, 0)
        self._popularity_sums = dict.fromkeys(ks, 0)

    def add(
        self,
        top_EK: NDArray[np.int64],
        truth_indptr: NDArray[np.int64],
        truth_indices: NDArray[np.int64],
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        """Count a block of examples.

        Args:
            top_EK: Items recommended to each example, int64 [E, K], best first, without repeats; -1 after
                the last one. K is at least max(ks) or the number of items.
            truth_indptr: int64 [E + 1], where each example's true items begin.
            truth_indices: int64 [Z], the true items, without repeats within an example.
            rows: The examples' rows in the dataset, int64 [E], to keep the metrics of each; None: keep none.
        """
        assert len(top_EK) == len(truth_indptr) - 1, "one row of recommendations for each example"
        assert top_EK.shape[1] >= min(max(self._ks), len(self._popularity)), (
            "K must reach the largest k, or the whole catalogue"
        )
        top_EK, num_true_E = top_EK[:, : max(self._ks)], np.diff(truth_indptr)
        counted = num_true_E > 0
        hit_EK = hits(top_EK, truth_indptr, truth_indices, len(self._popularity))
        values = _means(hit_EK[counted], num_true_E[counted], self._ks)
        self.num_examples += int(counted.sum())
        for name, values_E in values.items():
            self._sums[name] += _exact_sum(values_E)
        if rows is not None:
            kept_EM = np.stack([values[name] for name in self._sums], axis=1)
            self._users.append((rows[counted], kept_EM.astype(np.float32)))
        for k, is_recommended in self._recommended.items():
            top = top_EK[counted, :k]
            recommended = top[top >= 0]
            is_recommended[recommended] = True
            self._num_recommendations[k] += len(recommended)
            self._popularity_sums[k] += int(self._popularity[recommended].sum())

    def result(self) -> Metrics:
        """Return every metric of `metric_names(ks)`, or the means alone, then "num_examples".

        Raises:
            DataError: No example had a true item.
        """
        DataError.require(self.num_examples, "no example has a held-out item")
        values: dict[str, float] = {}
        for k in self._ks:
            for metric in MEANS:
                values[f"{metric}@{k}"] = self._sums[f"{metric}@{k}"] / (_ONE * self.num_examples)
            if k in self._recommended:
                values[f"coverage@{k}"] = float(self._recommended[k].mean())
                largest = max(1, self._num_recommendations[k] * int(self._popularity.max()))
                values[f"popularity@{k}"] = self._popularity_sums[k] / largest
        metrics = Metrics(values | {"num_examples": float(self.num_examples)})
        if self._users:
            rows, kept = (np.concatenate(blocks) for blocks in zip(*self._users, strict=True))
            order = np.argsort(rows)
            metrics.users = UserMetrics(tuple(self._sums), rows[order], kept[order])
        return metrics


def hits(
    top_EK: NDArray[np.int64], truth_indptr: NDArray[np.int64], truth_indices: NDArray[np.int64], width: int
) -> NDArray[np.bool_]:
    """Whether each recommendation is a true item of its example, bool [E, K]."""
    if len(truth_indices) == 0:
        return np.zeros(top_EK.shape, dtype=np.bool_)
    examples = np.arange(len(top_EK), dtype=np.int64)
    true_pairs = np.sort(np.repeat(examples, np.diff(truth_indptr)) * width + truth_indices)
    pairs_EK = examples[:, None] * width + top_EK
    nearest_EK = np.minimum(np.searchsorted(true_pairs, pairs_EK), len(true_pairs) - 1)
    hit_EK: NDArray[np.bool_] = (true_pairs[nearest_EK] == pairs_EK) & (top_EK >= 0)
    return hit_EK


@lru_cache(maxsize=1)
def _discounts(length: int) -> NDArray[np.float64]:
    """Return the discounts of NDCG by rank; every block of an evaluation needs the same ones.

    The C library computes them: NumPy's logarithms have other bits on processors with AVX-512.
    """
    return 1 / np.array([math.log2(rank + 1) for rank in range(1, length + 1)])


def _means(
    hit_EK: NDArray[np.bool_], num_true_E: NDArray[np.int64], ks: Sequence[int]
) -> dict[str, NDArray[np.float64]]:
    """Compute each mean metric for each example, float64 [E] in [0, 1].

    Every sum along a list is a running sum from the best item on, so its bits depend on that list alone.
    """
    ranks_K = np.arange(1, hit_EK.shape[1] + 1, dtype=np.float64)
    discounts_K = _discounts(hit_EK.shape[1])
    ideal_K = np.cumsum(discounts_K)
    num_hits_EK = np.cumsum(hit_EK, axis=1)
    gain_EK = np.cumsum(hit_EK * discounts_K, axis=1)
    precision_EK = np.cumsum(hit_EK * (num_hits_EK / ranks_K), axis=1)
    first_E = np.where(num_hits_EK[:, -1] > 0, hit_EK.argmax(axis=1) + 1, np.inf)
    values = {}
    for k in ks:
        last = min(k, hit_EK.shape[1]) - 1
        num_hits_E = num_hits_EK[:, last]
        reachable_E = np.minimum(num_true_E, min(k, np.iinfo(np.int64).max))
        values[f"precision@{k}"] = num_hits_E / k
        values[f"recall@{k}"] = num_hits_E / num_true_E
        values[f"ndcg@{k}"] = gain_EK[:, last] / ideal_K[reachable_E - 1]
        values[f"map@{k}"] = precision_EK[:, last] / reachable_E
        values[f"mrr@{k}"] = np.where(first_E <= k, 1 / first_E, 0.0)
        values[f"hit_rate@{k}"] = (num_hits_E > 0).astype(np.float64)
    return values


def _exact_sum(values_E: NDArray[np.float64]) -> int:
    """Sum numbers in [0, 1], each rounded to a multiple of 2^-53; the result is in units of 2^-53."""
    units_E = np.rint(values_E * _ONE).astype(np.int64)
    upper, lower = units_E >> _HALF_BITS, units_E & ((1 << _HALF_BITS) - 1)
    return (int(upper.sum()) << _HALF_BITS) + int(lower.sum())
