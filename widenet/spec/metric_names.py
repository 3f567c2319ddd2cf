"""The names of the ranking metrics, and what a document may ask for."""

import re

from widenet.errors import OptionError

MEANS = ("precision", "recall", "ndcg", "map", "mrr", "hit_rate")
"""Metrics that are a mean over examples; each example's value lies in [0, 1]."""

TOTALS = ("coverage", "popularity")
"""Metrics of all recommendations together."""

LARGER_IS_BETTER = (*MEANS, "coverage")
"""Metrics that a training may be judged by."""

DEFAULT_KS = (5, 10, 20, 50, 100)
"""Lengths of the lists that an evaluation compares by default."""


def check_metric(name: str) -> int:
    """The k of a metric's name: 20 for "ndcg@20". Raises OptionError for a name that no metric has."""
    metric, _, k = name.partition("@")
    if metric not in MEANS + TOTALS or not re.fullmatch("[1-9][0-9]*", k):
        rule = f"must be one of {', '.join(MEANS + TOTALS)}, with @ and a whole number of at least 1"
        raise OptionError(rule, option="metric", value=name)
    return int(k)
