"""The methods that a network is measured against: what each learns of the training entries, and its lists."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from widenet.baselines.evaluate import check_part
from widenet.baselines.evaluated_lists import (
    Lists,
    as_lists,
    best,
    best_of_dense,
    best_unseen,
    evaluate_lists,
    training_entries,
)
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.errors import CapacityError
from widenet.late_imports import installed
from widenet.metrics.ranking import Metrics
from widenet.sparse import SparseBatch
from widenet.spec.metric_names import DEFAULT_KS

ONE = 2**40
"""The number 1 in the fixed-point form of weights, so that their sums have no order."""
NUM_NEIGHBOURS = 100
EASE_L2 = 500.0
MOST_ITEMS = 20_000
"""Items of which EASE inverts the matrix of co-occurrences."""
SLIM_L2 = 50.0
MOST_PAIRS = 400_000_000
"""Pairs of items of which SLIM keeps the number of users, in 8 bytes each."""
FACTORS, FEWEST_FACTORS = 128, 4
PER_FACTOR = 16
"""Items, and users, for each factor. With more factors, ALS repeats the few interactions and ranks badly."""
ITERATIONS = 15
_ROWS_TOGETHER = 256
_ITEMS_TOGETHER = 1024


def popularity(history: SparseBatch, width: int) -> Lists:
    """Return the lists of the most popular items that a user does not have; ties go to the lower item.

    Args:
        history: The training entries of all examples.
        width: Number of items.
    """
    counts = np.bincount(history.indices.numpy(), minlength=width)
    ranking = np.argsort(-counts, kind="stable")

    def lists(_: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        return best_unseen(lambda _, enough: ranking[:enough], seen, k)

    return lists


def evaluate_popularity(
    dataset: Dataset, field: str, part: Part = "heldout", ks: Sequence[int] = DEFAULT_KS
) -> Metrics:
    """Compute the metrics of the most popular items; raises OptionError for the train part."""
    check_part(part)
    history = training_entries(dataset, field, slice(0, dataset.num_examples))
    return evaluate_lists(popularity(history, dataset.field(field).width), dataset, field, part, ks)


def successors(sequences: SparseBatch, width: int) -> Lists:
    """Return the lists of the items that most often follow the newest item, then of the most popular ones.

    The lists read histories in order.

    A Markov chain of first order: Ludewig and Jannach, "Evaluation of session-based recommendation
    algorithms", User Modeling and User-Adapted Interaction 28, 2018. Ties go to the lower item.

    Args:
        sequences: The training entries of all examples, in order of time.
        width: Number of items.
    """
    starts_I, following_P = _successions(sequences, width)
    ranking = np.argsort(-np.bincount(sequences.indices.numpy(), minlength=width), kind="stable")

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        ends, items = entries.indptr.numpy(), entries.indices.numpy().astype(np.int64)

        def candidates(row: int, enough: int) -> NDArray[np.int64]:
            next_ones = following_P[:0]
            if ends[row] < ends[row + 1]:
                newest = items[ends[row + 1] - 1]
                next_ones = following_P[starts_I[newest] : starts_I[newest + 1]][:enough]
            others = ranking[: enough + len(next_ones)]
            return np.concatenate([next_ones, others[~np.isin(others, next_ones)]])

        return best_unseen(candidates, seen, k)

    return lists


def _successions(sequences: SparseBatch, width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first place of each item, int64 [width + 1], and what follows it, frequent ones first."""
    items, ends = sequences.indices.numpy().astype(np.int64), sequences.indptr.numpy()
    has_next = np.ones(len(items), dtype=bool)
    has_next[ends[1:][np.diff(ends) > 0] - 1] = False
    keys = items[:-1][has_next[:-1]] * width + items[1:][has_next[:-1]]
    pairs, counts = np.unique(keys, return_counts=True)
    first, second = np.divmod(pairs, width)
    order = np.lexsort((second, -counts, first))
    starts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=width))])
    return starts, second[order]


def matrix_of(entries: SparseBatch, width: int, dtype: type[np.number] = np.int64) -> Any:
    """Return a SciPy CSR matrix [E, width] with a 1 for each entry."""
    from scipy.sparse import csr_matrix

    ones = np.ones(entries.num_entries, dtype=dtype)
    return csr_matrix(
        (ones, entries.indices.numpy(), entries.indptr.numpy()), shape=(entries.num_examples, width)
    )


def cooccurrences(history: SparseBatch, width: int) -> Iterator[tuple[int, Any]]:
    """Yield blocks of items: the first one, and how many users have each of them and each item, int32 CSR.

    Args:
        history: The items of all examples, each once.
        width: Number of items.
    """
    users = matrix_of(history, width, np.int32)
    items = users.T.tocsr()
    for first in range(0, width, _ITEMS_TOGETHER):
        yield first, items[first : first + _ITEMS_TOGETHER] @ users


def nearest(history: SparseBatch, width: int, num_neighbours: int) -> Any:
    """Return the nearest neighbours of each item, the most similar first: int64 CSR [L, L].

    The similarity, in units of 1 / `ONE`, is the cosine of the items' users. Of equal items the lower one
    counts as nearer.
    """
    from scipy.sparse import csr_matrix

    counts = np.bincount(history.indices.numpy(), minlength=width)
    found = []
    for first, block in cooccurrences(history, width):
        pairs = block.tocoo()
        items, others = pairs.row.astype(np.int64) + first, pairs.col.astype(np.int64)
        cosine = pairs.data / np.sqrt(counts[items] * counts[others].astype(np.float64))
        entries = np.stack([items, others, np.rint(cosine * ONE).astype(np.int64)])
        entries = entries[:, (items != others) & (entries[2] > 0)]
        kept, _ = best(entries[0], entries[1], entries[2], num_neighbours)
        found.append(entries[:, kept])
    items, others, units = np.concatenate(found, axis=1)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=width))])
    return csr_matrix((units, others, indptr), shape=(width, width))


def weighted(weights: Any) -> Lists:
    """Return the lists of the items with the largest sums of weights.

    Of equal items the lower one counts as better. A list ends where no score above 0 is left.

    Args:
        weights: What each item of a history adds to the scores of other items: int64 CSR [L, L].
    """

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        width = weights.shape[0]
        scores = (matrix_of(entries, width) @ weights).tocoo()
        users, items = scores.row.astype(np.int64), scores.col.astype(np.int64)
        known = seen.example_of_entry().numpy() * width + seen.indices.numpy().astype(np.int64)
        able = ~np.isin(users * width + items, known) & (scores.data > 0)
        return as_lists(users[able], items[able], scores.data[able], entries.num_examples, k)

    return lists


def item_knn(history: SparseBatch, width: int, num_neighbours: int = NUM_NEIGHBOURS) -> Lists:
    """Return the lists of item-based nearest neighbours.

    An item's score is the sum of its similarities to the user's items, over those that have it among their
    nearest neighbours: Deshpande and Karypis, "Item-based top-N recommendation algorithms", ACM TOIS 22(1),
    2004. Nothing of size width x width is stored.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        num_neighbours: Neighbours of each item.
    """
    return weighted(nearest(history, width, num_neighbours))


def _dense_lists(scores: Callable[[SparseBatch], Tensor]) -> Lists:
    """Return the lists of scores [E, L] of all items, which are computed for some examples at a time."""

    def lists(entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        blocks = []
        for start in range(0, entries.num_examples, _ROWS_TOGETHER):
            rows = torch.arange(start, min(start + _ROWS_TOGETHER, entries.num_examples))
            blocks.append(best_of_dense(scores(entries.take(rows)), seen.take(rows), k))
        return np.concatenate(blocks)

    return lists


def ease(history: SparseBatch, width: int, l2: float = EASE_L2) -> Lists:
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
    for first, block in cooccurrences(history, width):
        gram_LL[first : first + block.shape[0]] = torch.from_numpy(block.toarray())
    gram_LL.diagonal().add_(l2)
    weight_LL = torch.cholesky_inverse(torch.linalg.cholesky(gram_LL))
    del gram_LL
    weight_LL /= -weight_LL.diagonal().clone()
    weight_LL.fill_diagonal_(0.0)

    def scores(own: SparseBatch) -> Tensor:
        return embedding_bag(own.indices.long(), weight_LL, own.indptr[:-1], mode="sum")

    return _dense_lists(scores)


def slim(
    history: SparseBatch, width: int, l2: float = SLIM_L2, num_neighbours: int = NUM_NEIGHBOURS
) -> Lists:
    """Return the lists of SLIM, with weights to each item from its nearest neighbours.

    Ning and Karypis, "SLIM: sparse linear methods for top-N recommender systems", ICDM 2011, with their
    selection of features (fsSLIM), but with an l2 penalty alone, so that the weights have a closed form. With
    G = X'X, those to item j from its neighbours N are (G[N, N] + l2 I)^-1 G[N, j]. Where all other items are
    neighbours, they are EASE's. All in float64, with one thread; scores are sums of whole numbers.

    Args:
        history: The training entries of all examples, each item once.
        width: Number of items.
        l2: The l2 penalty.
        num_neighbours: Neighbours of each item.

    Raises:
        CapacityError: There may be too many pairs of items.
    """
    pairs = most_pairs(history, width)
    if pairs > MOST_PAIRS:
        raise CapacityError(
            f"must have at most {MOST_PAIRS:,} pairs of items for SLIM", option="history", value=pairs
        )
    from scipy.sparse import coo_matrix, vstack

    near, users = (
        nearest(history, width, num_neighbours),
        vstack([b for _, b in cooccurrences(history, width)]),
    )
    weights = []
    for item in range(width):
        both = np.append(near.indices[near.indptr[item] : near.indptr[item + 1]], item)
        weights.append(_slim_weights(torch.from_numpy(users[both][:, both].toarray()).double(), l2))
    targets = np.repeat(np.arange(width), np.diff(near.indptr))
    entries = (np.concatenate(weights), (near.indices, targets))
    return weighted(coo_matrix(entries, shape=(width, width)).tocsr())


def most_pairs(history: SparseBatch, width: int) -> int:
    """Return a bound of the number of pairs of items that occur together."""
    return min(int(history.counts().square().sum()), width**2)


def _slim_weights(gram_MM: Tensor, l2: float) -> NDArray[np.int64]:
    """Return the weights of all items but the last to the last one, in units of 1 / `ONE`."""
    gram_NN, target_N1 = gram_MM[:-1, :-1].clone(), gram_MM[:-1, -1:]
    gram_NN.diagonal().add_(l2)
    weights_N1 = torch.cholesky_solve(target_N1, torch.linalg.cholesky(gram_NN))
    units_N: NDArray[np.int64] = np.rint(weights_N1[:, 0].numpy() * ONE).astype(np.int64)
    return units_N


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

    with warnings.catch_warnings(action="ignore"):  # advice about threads
        model = AlternatingLeastSquares(
            factors=num_factors(history.num_examples, width),
            iterations=ITERATIONS,
            num_threads=1,
            random_state=0,
        )
        model.fit(matrix_of(history, width, np.float32), show_progress=False)
    item_factors = torch.from_numpy(model.item_factors)

    def scores(own: SparseBatch) -> Tensor:
        # A product of fewer rows may round otherwise.
        factors, number = torch.zeros(_ROWS_TOGETHER, item_factors.shape[1]), own.num_examples
        users = matrix_of(own, width, np.float32)
        factors[:number] = torch.from_numpy(model.recalculate_user(np.arange(number), users))
        return (factors @ item_factors.T)[:number]

    return _dense_lists(scores)


def num_factors(num_users: int, num_items: int) -> int:
    """Return the number of factors for so many users and items."""
    return min(FACTORS, max(FEWEST_FACTORS, min(num_users, num_items) // PER_FACTOR))
