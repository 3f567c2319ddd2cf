"""The most popular items, the same for everybody."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from widenet.baselines.evaluate import check_part
from widenet.baselines.evaluated_lists import Lists, best_unseen, evaluate_lists, training_entries
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.metrics.ranking import Metrics
from widenet.sparse import SparseBatch
from widenet.spec.metric_names import DEFAULT_KS


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
