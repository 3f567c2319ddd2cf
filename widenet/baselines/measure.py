"""The baselines of an evaluation."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from widenet.baselines.evaluated_lists import Lists, evaluate_lists, training_entries
from widenet.baselines.methods import (
    MOST_ITEMS,
    MOST_PAIRS,
    als,
    ease,
    item_knn,
    most_pairs,
    popularity,
    slim,
    successors,
)
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.messages import ignore_message
from widenet.metrics.ranking import Metrics
from widenet.sparse import SparseBatch

_IN_ORDER = "successors"
"""The baseline that reads histories in order."""


def measured(
    dataset: Dataset,
    field: str,
    part: Part,
    ks: Sequence[int],
    level: float | None = None,
    exclude_seen: bool = True,
    say: Callable[[str], None] | None = None,
) -> dict[str, Metrics]:
    """Compute the metrics of every baseline that can be computed, by name.

    EASE needs at most `ease.MOST_ITEMS` items, SLIM at most `slim.MOST_PAIRS` pairs of items, ALS needs
    `implicit`, and successors need a sequence. They have the same bits in every process.

    Args:
        dataset: The examples.
        field: The field of items.
        part: A part that was set aside.
        ks: The list lengths to measure.
        level: Level of the confidence intervals; None: none.
        exclude_seen: Whether to leave out the items that a user has.
        say: Called with a sentence before each baseline; None: nobody hears it.
    """
    width = dataset.field(field).width
    everyone = slice(0, dataset.num_examples)
    history = training_entries(dataset, field, everyone)
    makers: dict[str, Callable[[SparseBatch, int], Lists]] = {"popularity": popularity}
    if dataset.field(field).kind == "sequence":
        makers[_IN_ORDER] = lambda _, width: successors(dataset.sparse(field, everyone), width)
    makers["item-kNN"] = item_knn
    if most_pairs(history, width) <= MOST_PAIRS:
        makers["SLIM"] = slim
    if width <= MOST_ITEMS:
        makers["EASE"] = ease
    if find_spec("implicit") is not None:
        makers["ALS"] = als
    found = {}
    say = say or ignore_message
    for name, make in makers.items():
        say(f"measuring {name} ...")
        metrics = evaluate_lists(
            make(history, width),
            dataset,
            field,
            part,
            ks,
            level is not None,
            exclude_seen=exclude_seen,
            in_order=name == _IN_ORDER,
        )
        if metrics.users is not None and level is not None:
            metrics.intervals = metrics.users.intervals(level)
            metrics.users = None
        found[name] = metrics
    return found
