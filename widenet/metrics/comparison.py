"""Comparisons of two evaluations over the same users: paired differences, intervals and p-values."""

from dataclasses import dataclass

import numpy as np

from widenet.errors import FitError
from widenet.metrics.ranking import Metrics
from widenet.metrics.resampling import NUM_RESAMPLES, intervals, p_values
from widenet.pictures.html import Html, table


@dataclass(frozen=True)
class PairedDifference:
    """One metric of two runs.

    Attributes:
        first: Mean of the first run.
        second: Mean of the second run.
        difference: `second` - `first`.
        lower: Lower bound of the confidence interval of the difference.
        upper: Upper bound.
        p_value: Probability of a difference at least this large if the runs were equally good.
    """

    first: float
    second: float
    difference: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """Two runs, metric by metric; a notebook shows a table.

    Attributes:
        level: Confidence level of the intervals.
        num_examples: Number of users, the same for both runs.
        metrics: The differences by metric name, such as "ndcg@20".
    """

    level: float
    num_examples: int
    metrics: dict[str, PairedDifference]

    def _repr_html_(self) -> Html:
        return table(
            ["", "first", "second", "difference", f"{self.level * 100:g} % interval", "p"],
            [[name, *cells(each)] for name, each in self.metrics.items()],
            numbers=True,
        )


def cells(each: PairedDifference) -> list[str]:
    """Return both means, the difference, its interval and the p-value as texts."""
    interval = f"{each.lower:+.4f} to {each.upper:+.4f}"
    least = 1 / NUM_RESAMPLES
    p_value = f"< {least:g}" if each.p_value < least else f"{each.p_value:.4f}"
    return [f"{each.first:.4f}", f"{each.second:.4f}", f"{each.difference:+.4f}", interval, p_value]


def compared(first: Metrics, second: Metrics, level: float) -> Comparison:
    """Compare two evaluations that have kept the metrics of each user; see `widenet.metrics.resampling`.

    Args:
        first: An evaluation.
        second: Another one of the same part of the same dataset.
        level: Confidence level of the intervals.

    Raises:
        FitError: They share no metric, or have other users.
    """
    assert first.users is not None, "the evaluation keeps the metrics of each user"
    assert second.users is not None, "the evaluation keeps the metrics of each user"
    names = [name for name in first.users.names if name in second.users.names]
    if not names:
        raise FitError("the two evaluations must share a metric")
    if not np.array_equal(first.users.rows, second.users.rows):
        raise FitError("the two evaluations must be over the same users")
    values = [
        each.values[:, [each.names.index(name) for name in names]] for each in (first.users, second.users)
    ]
    differences_EM = values[1].astype(np.float64) - values[0]
    lower, upper = intervals(differences_EM, level)
    found = zip(names, lower.tolist(), upper.tolist(), p_values(differences_EM).tolist(), strict=True)
    metrics = {
        name: PairedDifference(first[name], second[name], second[name] - first[name], low, high, p_value)
        for name, low, high, p_value in found
    }
    return Comparison(level, len(first.users.rows), metrics)
