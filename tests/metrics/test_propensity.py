"""Propensity-scored precision against sums by hand, loops over points, and the field's own implementation."""

import math

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.errors import OptionError
from widenet.metrics.further import Propensity, PropensityScored
from widenet.metrics.ranking import RankingMetrics


def measured(lists, truths, inverse, block=100, ks=(1, 3)):
    metrics = PropensityScored(ks, inverse)
    for start in range(0, len(lists), block):
        rows = truths[start : start + block]
        indptr = np.cumsum([0, *map(len, rows)])
        metrics.add(
            np.array(lists[start : start + block]),
            indptr,
            np.array([label for row in rows for label in row], dtype=np.int64),
        )
    return metrics.result()


TRAINED = [[0, 1], [0, 2], [0], [1, 3], [0, 4], [0, 1, 5], [2], [0, 6], [1], [0, 2, 7], [3], [0, 1]]
TRUTHS = [[0, 3], [1], [2, 5, 7], [0, 1, 4, 6], [3], [0]]
LISTS = [[0, 1, 3, 2, 4], [0, 1, 2, 3, 5], [5, 0, 2, 1, 7], [6, 0, 3, 1, 2], [0, 1, 2, 4, 5], [0, 2, 1, 3, 6]]


@pytest.mark.parametrize(
    ("numbers", "psp"),
    [
        ((0.55, 1.5), [0.6443564473, 0.6080648671, 0.6885811275, 0.7161152485, 0.8140388483]),
        ((0.5, 0.4), [0.6493664910, 0.6020185262, 0.6830366373, 0.7099429899, 0.8114029769]),
        ((0.6, 2.6), [0.6428546380, 0.6122677552, 0.6918883132, 0.7196843454, 0.8157397462]),
    ],
)
def test_the_reference_implementation_gives_these_figures(numbers, psp):
    """Those of `compute_inv_propesity`, `psprecision`, `precision` and `ndcg` of pyxclib, commit 5d13086."""
    counts = np.bincount([label for labels in TRAINED for label in labels])
    inverse = Propensity(*numbers).inverse(counts, len(TRAINED))
    ks = (1, 2, 3, 4, 5)
    found = measured(LISTS, TRUTHS, inverse, ks=ks)
    assert [*found.values()] == pytest.approx(psp, abs=1e-7)
    assert found == measured(LISTS[::-1], TRUTHS[::-1], inverse, 2, ks)
    ranking = RankingMetrics(ks, counts)
    ranking.add(np.array(LISTS), np.cumsum([0, *map(len, TRUTHS)]), np.concatenate(TRUTHS))
    found = ranking.result()
    precision, ndcg = ([found[f"{name}@{k}"] for k in ks] for name in ("precision", "ndcg"))
    assert precision == pytest.approx([2 / 3, 1 / 2, 4 / 9, 3 / 8, 1 / 3], abs=1e-12)
    assert ndcg == pytest.approx([0.6666667, 0.6428707, 0.6699882, 0.6765631, 0.7068201], abs=1e-6)


@pytest.mark.parametrize("numbers", [["0.55"], ["a", "1"], [2, 1.5], [0.5, float("nan")], [1, 1e-9]])
def test_wrong_constants_are_named(numbers):
    with mistake(OptionError, option="propensity"):
        Propensity.of(numbers)


def test_the_largest_inverse_propensities_add_up_without_an_end():
    """The bounds of A and B, a label without points, and as many points as there can be features."""
    inverse = Propensity(1, 0.1).inverse(np.zeros(1, np.int64), 2**32)
    examples = 2**20
    found = measured([[0]] * examples, [[0]] * examples, inverse, examples)
    assert inverse[0] == pytest.approx(1 + (32 * math.log(2) - 1) * 11)
    assert found == {"psp@1": 1.0, "psp@3": 1.0}
