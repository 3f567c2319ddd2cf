"""Means by groups against an evaluation of each group alone."""

import numpy as np
import pytest

from widenet.metrics.further import GroupedMetrics
from widenet.metrics.ranking import RankingMetrics

WIDTH = 12
POPULARITY = np.array([9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 0, 0], dtype=np.int64)
"""35 entries: the head is 0 and 1, whose 9 and 16 reach a third of them, 11.67, together."""
LENGTHS = np.array([1, 1, 2, 3, 3, 4, 8, 9, 9, 9])
ROWS = np.arange(10) * 3
TOP = np.stack([np.random.default_rng(user).permutation(WIDTH)[:5] for user in range(10)])
TRUTH = [sorted(np.random.default_rng([user, 1]).permutation(WIDTH)[:4].tolist()) for user in range(10)]


def add(metrics, users, keep=lambda _: True, with_rows=False):
    truth = [[item for item in TRUTH[user] if keep(item)] for user in users]
    indptr = np.cumsum([0, *map(len, truth)])
    block = TOP[users], indptr, np.array([item for items in truth for item in items], dtype=np.int64)
    metrics.add(*block, *([ROWS[users]] if with_rows else []))
    return metrics


def grouped(blocks):
    metrics = GroupedMetrics([2, 5], POPULARITY, ROWS, LENGTHS)
    for users in blocks:
        add(metrics, users, with_rows=True)
    return metrics.result()


@pytest.mark.parametrize(
    ("name", "users", "keep", "ends"),
    [
        ("new users", [0, 1, 2], lambda _: True, (1, 2)),
        ("casual users", [3, 4, 5, 6], lambda _: True, (3, 8)),
        ("heavy users", [7, 8, 9], lambda _: True, (9, 9)),
        ("head items", [*range(10)], lambda item: item <= 1, (7, 9)),
        ("tail items", [*range(10)], lambda item: item > 1, (0, 5)),
    ],
)
def test_a_group_has_the_means_of_its_users_or_items_alone(name, users, keep, ends):
    alone = add(RankingMetrics([2, 5], POPULARITY), users, keep).result()
    found = grouped([[*range(10)]])[name]
    assert (found.pop("least"), found.pop("most")) == ends
    assert found == {metric: alone[metric] for metric in found}
    assert {"ndcg@5", "recall@2", "num_examples"} <= set(found)


def test_blocks_and_order_change_no_bit():
    assert grouped([[9, 3], [1, 0, 8], [2, 4, 5, 7, 6]]) == grouped([[*range(10)]])
