"""EASE: a linear item-to-item model in closed form."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import embedding_bag

from widenet.baselines.cooccurrence import cooccurrences
from widenet.baselines.evaluated_lists import Lists, best_of_dense
from widenet.errors import CapacityError
from widenet.sparse import SparseBatch

L2 = 500.0
MOST_ITEMS = 20_000
"""Items of which EASE inverts the matrix of co-occurrences."""

_ROWS_TOGETHER = 256


def ease(history: SparseBatch, width: int, l2: float = L2) -> Lists:
    """Return the lists of EASE: Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019.

    With G = X'X + l2 I and P its inverse, the weight from item i to item j is -P[i, j] / P[j, j], and 0 for
    an item and itself (equation 8). All in float64, with one thread.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        l2: The l2 penalty.

    Raises:
        CapacityError: The dense matrix is too large.
    """
    if width > MOST_ITEMS:
        raise CapacityError(f"must be at most {MOST_ITEMS:,} items for EASE", option="width", value=width)
    gram_LL = torch.zeros(width, width, dtype=torch.float64)
    for item, (others, together) in enumerate(cooccurrences(history, width)):
        gram_LL[item, torch.from_numpy(others)] = torch.from_numpy(together).double()
    gram_LL.diagonal().add_(l2)
    weight_LL = torch.cholesky_inverse(torch.linalg.cholesky(gram_LL))
    del gram_LL
    weight_LL /= -weight_LL.diagonal().clone()
    weight_LL.fill_diagonal_(0.0)

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        blocks = []
        for start in range(0, entries.num_examples, _ROWS_TOGETHER):
            rows = torch.arange(start, min(start + _ROWS_TOGETHER, entries.num_examples))
            own = entries.take(rows)
            scores_EL = embedding_bag(own.indices.long(), weight_LL, own.indptr[:-1], mode="sum")
            blocks.append(best_of_dense(scores_EL, seen.take(rows), k))
        return np.concatenate(blocks)

    return lists
