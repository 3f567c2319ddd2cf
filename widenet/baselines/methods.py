"""The methods that a network is measured against: what each learns of the training entries, and its lists."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from widenet.baselines.evaluate import check_part
from widenet.baselines.evaluated_lists import (
    Lists,
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

_DENSE_SHARE = 8
"""Entries are counted in an array over all items if they are at least this share of them."""
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


def cooccurrences(history: SparseBatch, width: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield for each item the items of its users, ascending and itself among them, and the users of both.

    Args:
        history: The items of all examples, each once.
        width: Number of items.
    """
    user_indptr, items = history.indptr.numpy(), history.indices.numpy().astype(np.int64)
    users = history.example_of_entry().numpy()[np.argsort(items, kind="stable")]
    item_indptr = np.concatenate([[0], np.cumsum(np.bincount(items, minlength=width))])
    for item in range(width):
        places, _ = ranges(user_indptr, users[item_indptr[item] : item_indptr[item + 1]])
        yield _counted(items[places], width)


def ranges(indptr: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the entries of some rows, one row after another, and the size of each row."""
    sizes = indptr[rows + 1] - indptr[rows]
    ends = np.cumsum(sizes)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(indptr[rows] - (ends - sizes), sizes)
    return places, sizes


def _counted(items: NDArray[np.int64], width: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct items, ascending, and how often each occurs."""
    if len(items) * _DENSE_SHARE < width:
        return np.unique(items, return_counts=True)
    counts = np.bincount(items, minlength=width)
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]


@dataclass(frozen=True)
class ItemWeights:
    """What each item of a history adds to the scores of other items, as CSR.

    Attributes:
        indptr: The entries of each item, int64 [L + 1].
        others: The other items, int64 [Z].
        weights: What they get, in units of 1 / `ONE`, int64 [Z].
    """

    indptr: NDArray[np.int64]
    others: NDArray[np.int64]
    weights: NDArray[np.int64]

    def lists(self, entries: SparseBatch, seen: SparseBatch, k: int) -> NDArray[np.int64]:
        """Return the items with the largest sums of weights, int64 [E, k]; see `lists.Lists`.

        Of equal items the lower one counts as better. A list ends where no score above 0 is left.
        """
        width, items = len(self.indptr) - 1, entries.indices.numpy().astype(np.int64)
        places, sizes = ranges(self.indptr, items)
        users = np.repeat(entries.example_of_entry().numpy(), sizes)
        pairs, inverse = np.unique(users * width + self.others[places], return_inverse=True)
        scores = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(scores, inverse, self.weights[places])
        known = seen.example_of_entry().numpy() * width + seen.indices.numpy().astype(np.int64)
        able = ~np.isin(pairs, known) & (scores > 0)
        return _best(pairs[able], scores[able], width, entries.num_examples, k)


def nearest(history: SparseBatch, width: int, num_neighbours: int) -> ItemWeights:
    """Return the nearest neighbours of each item with their similarities, the most similar first.

    The similarity is the cosine of the items' users. Of equal items the lower one counts as nearer.
    """
    counts = np.bincount(history.indices.numpy(), minlength=width)
    neighbours: list[NDArray[np.int64]] = []
    similarities: list[NDArray[np.int64]] = []
    for item, (others, together) in enumerate(cooccurrences(history, width)):
        kept = others != item
        others, together = others[kept], together[kept]
        cosine = together / np.sqrt(counts[item] * counts[others].astype(np.float64))
        units = np.rint(cosine * ONE).astype(np.int64)
        best = np.argsort(-units, kind="stable")[:num_neighbours]
        neighbours.append(others[best])
        similarities.append(units[best])
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in neighbours])])
    return ItemWeights(indptr, np.concatenate(neighbours), np.concatenate(similarities))


def _best(
    pairs: NDArray[np.int64], scores: NDArray[np.int64], width: int, num_examples: int, k: int
) -> NDArray[np.int64]:
    """Return the k pairs with the highest scores of each example, int64 [E, k]; -1 after the last."""
    users, items = np.divmod(pairs, width)
    order = np.lexsort((items, -scores, users))
    users, items = users[order], items[order]
    first = np.searchsorted(users, np.arange(num_examples))
    ranks = np.arange(len(users)) - first[users]
    top_EK = np.full((num_examples, k), -1, dtype=np.int64)
    kept = ranks < k
    top_EK[users[kept], ranks[kept]] = items[kept]
    return top_EK


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
    return nearest(history, width, num_neighbours).lists


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
    for item, (others, together) in enumerate(cooccurrences(history, width)):
        gram_LL[item, torch.from_numpy(others)] = torch.from_numpy(together).double()
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
    near, users = nearest(history, width, num_neighbours), _UsersOfBoth(history, width)
    weights = []
    for item in range(width):
        neighbours = near.others[near.indptr[item] : near.indptr[item + 1]]
        gram_MM = torch.from_numpy(users.among(np.append(neighbours, item)))
        weights.append(_slim_weights(gram_MM, l2))
    order = np.argsort(near.others, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(near.others, minlength=width))])
    targets = np.repeat(np.arange(width), np.diff(near.indptr))
    return ItemWeights(indptr, targets[order], np.concatenate(weights)[order]).lists


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


class _UsersOfBoth:
    """How many users have both of two items, for all pairs of items."""

    def __init__(self, history: SparseBatch, width: int) -> None:
        # The system gives memory for the part of these arrays that is filled, and no more.
        others, users = (np.empty(most_pairs(history, width), dtype=np.int32) for _ in range(2))
        indptr = [0]
        for items, counts in cooccurrences(history, width):
            own = slice(indptr[-1], indptr[-1] + len(items))
            others[own], users[own] = items, counts
            indptr.append(own.stop)
        self._indptr, self._others, self._users = np.array(indptr), others[: indptr[-1]], users[: indptr[-1]]
        self._place_L = np.full(width, -1)

    def among(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers for all pairs of some items, float64 [M, M]."""
        numbers_MM = np.zeros((len(items), len(items)))
        self._place_L[items] = np.arange(len(items))
        places, sizes = ranges(self._indptr, items)
        rows, columns = np.repeat(np.arange(len(items)), sizes), self._place_L[self._others[places]]
        kept = columns >= 0
        numbers_MM[rows[kept], columns[kept]] = self._users[places[kept]]
        self._place_L[items] = -1
        return numbers_MM


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

    def scores(own: SparseBatch) -> Tensor:
        # A product of fewer rows may round otherwise.
        factors, number = torch.zeros(_ROWS_TOGETHER, item_factors.shape[1]), own.num_examples
        factors[:number] = torch.from_numpy(model.recalculate_user(np.arange(number), matrix(own)))
        return (factors @ item_factors.T)[:number]

    return _dense_lists(scores)


def num_factors(num_users: int, num_items: int) -> int:
    """Return the number of factors for so many users and items."""
    return min(FACTORS, max(FEWEST_FACTORS, min(num_users, num_items) // PER_FACTOR))
