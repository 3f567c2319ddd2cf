"""Lists from weights that are written by hand."""

import numpy as np

from widenet.baselines.methods import ONE, ItemWeights
from widenet.sparse import SparseBatch


def test_a_list_ends_before_scores_of_zero_or_less():
    indptr, others = np.array([0, 3, 5, 5, 5]), np.array([1, 2, 3, 2, 3])
    weights = ItemWeights(indptr, others, np.array([3, 2, -1, -2, 4]) * ONE)
    users = SparseBatch.from_lists([[0], [1], [0, 1], [2]])
    assert weights.lists(users, users, 3).tolist() == [[1, 2, -1], [3, -1, -1], [3, -1, -1], [-1, -1, -1]]
