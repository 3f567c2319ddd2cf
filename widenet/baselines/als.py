"""Alternating least squares, of the package `implicit`."""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray

from widenet.baselines.evaluated_lists import Lists, best_of_dense
from widenet.late_imports import installed
from widenet.sparse import SparseBatch

FACTORS, FEWEST_FACTORS = 128, 4
PER_FACTOR = 16
"""Items, and users, for each factor. With more factors, ALS repeats the few interactions and ranks badly."""
ITERATIONS = 15

_ROWS_TOGETHER = 256


def als(history: SparseBatch, width: int) -> Lists:
    """Return the lists of ALS as `implicit` trains it, with its own defaults, one thread and seed 0.

    There are `FACTORS` factors, fewer on small data: see `num_factors`.

    Hu, Koren and Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008. A user's
    factors are those that the trained item factors give for the user's training entries.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.

    Raises:
        OptionError: `implicit` is not installed.
    """
    with installed("implicit"):
        from implicit.cpu.als import AlternatingLeastSquares
        from scipy.sparse import csr_matrix

    def matrix(entries: SparseBatch) -> "csr_matrix":
        ones = np.ones(entries.num_entries, dtype=np.float32)
        indices = entries.indices.numpy().astype(np.int32)
        return csr_matrix((ones, indices, entries.indptr.numpy()), shape=(entries.num_examples, width))

    with warnings.catch_warnings(action="ignore"):  # advice about threads
        model = AlternatingLeastSquares(
            factors=num_factors(history.num_examples, width),
            iterations=ITERATIONS,
            num_threads=1,
            random_state=0,
        )
        model.fit(matrix(history), show_progress=False)
    item_factors = torch.from_numpy(model.item_factors)

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        blocks = []
        for start in range(0, entries.num_examples, _ROWS_TOGETHER):
            rows = torch.arange(start, min(start + _ROWS_TOGETHER, entries.num_examples))
            own = entries.take(rows)
            # A product of fewer rows may round otherwise.
            factors = torch.zeros(_ROWS_TOGETHER, item_factors.shape[1])
            factors[: len(rows)] = torch.from_numpy(model.recalculate_user(np.arange(len(rows)), matrix(own)))
            blocks.append(best_of_dense((factors @ item_factors.T)[: len(rows)], seen.take(rows), k))
        return np.concatenate(blocks)

    return lists


def num_factors(num_users: int, num_items: int) -> int:
    """Return the number of factors for so many users and items."""
    return min(FACTORS, max(FEWEST_FACTORS, min(num_users, num_items) // PER_FACTOR))
