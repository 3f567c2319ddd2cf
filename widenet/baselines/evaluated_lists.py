"""Evaluation of a baseline, from the lists that it gives."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widenet.baselines.evaluate import truths
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.metrics.ranking import Metrics, RankingMetrics
from widenet.predict.restrictions import known_parts, seen_entries
from widenet.sparse import SparseBatch

Lists = Callable[[SparseBatch, SparseBatch, int], NDArray[np.int64]]
"""Gives the items of the best lists, int64 [E, k] with -1 after the last, from the history of E examples, the
entries to leave out, and k."""


def training_entries(dataset: Dataset, field: str, rows: np.ndarray | slice) -> SparseBatch:
    """Return the training part of a field for some examples, each item once and without values."""
    entries = dataset.sparse(field, rows)
    return entries.distinct() if dataset.field(field).kind == "sequence" else entries.with_values(None)


def evaluate_lists(
    lists: Lists,
    dataset: Dataset,
    field: str,
    part: Part,
    ks: Sequence[int],
    keep_users: bool = False,
    *,
    exclude_seen: bool = True,
    in_order: bool = False,
) -> Metrics:
    """Compute the metrics of a baseline as `widenet.baselines.evaluate.evaluate` does those of a network.

    As there, the history is the training part, and of a sequence everything before `part`.

    Args:
        lists: The baseline.
        dataset: The examples.
        field: The field of items.
        part: A part that was set aside.
        ks: The list lengths to measure.
        keep_users: Whether to keep the metrics of each user.
        exclude_seen: Whether the lists leave out the items that a user has.
        in_order: Whether the baseline reads everything before `part` in order, repeats included.
    """
    counts, known = dataset.counts(field), known_parts(dataset, field, part)
    is_sequence = dataset.field(field).kind == "sequence"
    metrics = RankingMetrics(ks, counts)
    longest = min(max(ks), len(counts))
    for rows, truth in truths(dataset, field, part, longest):
        seen = seen_entries(dataset, field, rows, known)
        if in_order:
            history = seen
        else:
            history = seen.distinct() if is_sequence else training_entries(dataset, field, rows)
        left_out = seen if exclude_seen else seen.keep(torch.zeros(seen.num_entries, dtype=torch.bool))
        top_EK = lists(history, left_out, longest)
        true_items = truth.indices.numpy().astype(np.int64)
        metrics.add(top_EK, truth.indptr.numpy(), true_items, rows if keep_users else None)
    return metrics.result()


def best_unseen(
    candidates: Callable[[int, int], NDArray[np.int64]], seen: SparseBatch, k: int
) -> NDArray[np.int64]:
    """Return the first k candidates of each example that are not left out, int64 [E, k].

    Args:
        candidates: Gives the items of an example, best first, from its row and their number that is enough.
        seen: The items to leave out.
        k: Length of the lists.
    """
    indptr, indices = seen.indptr.numpy(), seen.indices.numpy().astype(np.int64)
    top_EK = np.full((seen.num_examples, k), -1, dtype=np.int64)
    for row in range(seen.num_examples):
        own = indices[indptr[row] : indptr[row + 1]]
        ranked = candidates(row, k + len(own))
        fresh = ranked[~np.isin(ranked, own)][:k]
        top_EK[row, : len(fresh)] = fresh
    return top_EK


def best_of_dense(scores_EL: Tensor, seen: SparseBatch, k: int) -> NDArray[np.int64]:
    """Return the k best items of each row that are not left out, int64 [E, k]; changes the scores.

    Of equal scores, the lower item comes first.
    """
    scores_EL[seen.example_of_entry(), seen.indices.long()] = -torch.inf
    lowest_E1 = torch.topk(scores_EL, k, dim=1).values[:, -1:]
    found = (scores_EL >= lowest_E1) & (scores_EL > -torch.inf)
    examples, items = found.nonzero().numpy().T
    return as_lists(examples, items, scores_EL[found].numpy(), len(scores_EL), k)


def as_lists(
    rows: NDArray[np.int64], items: NDArray[np.int64], scores: NDArray[Any], num_rows: int, k: int
) -> NDArray[np.int64]:
    """Return the k best items of each row, int64 [num_rows, k]; -1 after the last."""
    kept, ranks = best(rows, items, scores, k)
    top_EK = np.full((num_rows, k), -1, dtype=np.int64)
    top_EK[rows[kept], ranks] = items[kept]
    return top_EK


def best(
    rows: NDArray[np.int64], items: NDArray[np.int64], scores: NDArray[Any], k: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the k best scores of each row, and their ranks; of equals the lower item is first."""
    order = np.lexsort((items, -scores, rows))
    ranks = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])
    return order[ranks < k], ranks[ranks < k]
