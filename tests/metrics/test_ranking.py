"""Ranking metrics: hand-worked lists, the figures of ranx, and bits that do not depend on blocks."""

import math

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.errors import DataError, OptionError
from widenet.metrics.ranking import RankingMetrics
from widenet.spec.metric_names import check_metric

WIDTH = 60
KS = [1, 5, 10]


def csr(rows):
    indptr = np.cumsum([0] + [len(row) for row in rows])
    return indptr.astype(np.int64), np.array([item for row in rows for item in row], dtype=np.int64)


def measure(top, truth, ks=KS, popularity=None, block=1000):
    metrics = RankingMetrics(ks, np.arange(WIDTH, dtype=np.int64) if popularity is None else popularity)
    for start in range(0, len(top), block):
        metrics.add(np.array(top[start : start + block], dtype=np.int64), *csr(truth[start : start + block]))
    return metrics.result()


def random_examples(num_examples, seed=1, width=WIDTH, longest=12):
    generator = np.random.default_rng(seed)
    top = np.stack([generator.permutation(width)[:longest] for _ in range(num_examples)])
    truth = [sorted(generator.permutation(width)[: generator.integers(1, 20)]) for _ in range(num_examples)]
    return top, truth


def test_a_hand_worked_list():
    result = measure([[7, 3, 9, 1]], [[1, 3, 5]], ks=[2, 4])
    ideal = 1 + 1 / math.log2(3)
    assert result["precision@2"] == 0.5
    assert result["recall@2"] == pytest.approx(1 / 3, abs=1e-15)
    assert result["ndcg@2"] == pytest.approx((1 / math.log2(3)) / ideal, abs=1e-15)
    assert result["ndcg@4"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / (ideal + 0.5), abs=1e-15)
    assert result["map@2"] == 0.25
    assert result["map@4"] == pytest.approx((1 / 2 + 2 / 4) / 3, abs=1e-15)
    assert (result["mrr@2"], result["hit_rate@2"]) == (0.5, 1.0)
    assert result["coverage@4"] == 4 / WIDTH
    assert result["popularity@2"] == pytest.approx((7 + 3) / 2 / 59, abs=1e-15)
    assert result["num_examples"] == 1


BY_RANX = {
    "precision": (0.2, 0.155, 0.155),
    "recall": (0.0402700643654591, 0.09066369593169128, 0.16689233753862237),
    "ndcg": (0.2, 0.17865170874606764, 0.19006622704775739),
    "map": (0.2, 0.11191666666666666, 0.09990376984126983),
    "mrr": (0.2, 0.3129166666666666, 0.326875),
    "hit_rate": (0.2, 0.55, 0.65),
}
"""What ranx 0.3.21 gives for 40 random lists, at each of KS; of its map, which divides by all true items,
each user's is multiplied by their number over that of those which k places can hold.
"""


def test_the_ranx_package_agrees():
    ours = measure(*random_examples(40))
    found = {name: [ours[f"{name}@{k}"] for k in KS] for name in BY_RANX}
    assert found == {name: pytest.approx(means, abs=1e-12) for name, means in BY_RANX.items()}


def test_results_have_the_same_bits_for_every_block_size_and_order():
    top, truth = random_examples(211, seed=2)
    whole = measure(top, truth)
    assert measure(top, truth, block=7) == whole
    assert measure(top, truth, block=1) == whole
    assert measure(top[::-1], truth[::-1], block=50) == whole


def test_padding_is_never_a_hit_and_never_a_recommendation():
    truth = [[WIDTH - 1], [5]]
    result = measure([[3, -1, -1], [-1, -1, -1]], truth, ks=[3])
    assert [
        result[f"{metric}@3"] for metric in ("precision", "recall", "ndcg", "map", "mrr", "hit_rate")
    ] == [0.0] * 6
    assert result["coverage@3"] == 1 / WIDTH
    assert result["popularity@3"] == 3 / 59
    short = measure([[5, -1, -1]], [[5]], ks=[3])
    assert (short["precision@3"], short["recall@3"]) == (pytest.approx(1 / 3), 1.0)


def test_examples_without_a_true_item_do_not_count():
    counted = measure([[1, 2, 3]], [[2]], ks=[3])
    assert measure([[1, 2, 3], [9, 8, 7]], [[2], []], ks=[3]) == counted
    with mistake(DataError):
        measure([[1, 2, 3]], [[]], ks=[3])


def test_popularity_counts_every_recommendation_alike():
    popularity = np.array([8, 4, 2, 0], dtype=np.int64)
    result = measure([[0, 1], [2, -1]], [[3], [3]], ks=[1, 2], popularity=popularity)
    assert result["popularity@1"] == (8 + 2) / 2 / 8
    assert result["popularity@2"] == pytest.approx((8 + 4 + 2) / 3 / 8, abs=1e-15)
    assert result["coverage@2"] == 0.75
    assert measure([[0]], [[1]], ks=[1], popularity=np.zeros(4, dtype=np.int64))["popularity@1"] == 0.0


@pytest.mark.parametrize("name", ["ndgc@20", "recal", "loss", "ndcg", "ndcg@0", "ndcg@ten"])
def test_an_unknown_name_is_refused(name):
    with mistake(OptionError):
        check_metric(name)


@pytest.mark.parametrize("ks", [[], [0], [5, 5]])
def test_lengths_that_cannot_be_measured_are_refused(ks):
    with mistake(OptionError):
        RankingMetrics(ks, np.ones(3, dtype=np.int64))
