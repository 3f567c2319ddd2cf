"""A sample of a model's recommendations: examples of users, and shares of popular and rare items."""

from dataclasses import dataclass

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.restrictions import Histories, known_parts, rows_a_block, seen_entries
from widenet.runs import Model

K = 10
MOST_USERS = 512
_SHOWN_USERS, _SHOWN_ITEMS = 4, 8
_BOUNDS = {"first 1 %": 0.01, "1 to 5 %": 0.05, "5 to 20 %": 0.2, "20 to 50 %": 0.5, "50 to 100 %": 1.0}
"""Groups of items in order of falling popularity: the share of all items at which each group ends."""


@dataclass(frozen=True)
class Group:
    """Items of similar popularity: their shares of all items, interactions and recommendations, in [0, 1]."""

    name: str
    items: float
    interactions: float
    recommended: float


@dataclass(frozen=True)
class Shown:
    """A user with some titles of the history, and the recommendations, best first.

    Of a sequence they are the newest titles. A recommendation is a title, a score, and whether the item is in
    the set-aside part.
    """

    user: str
    history: list[str]
    num_history: int
    is_sequence: bool
    recommended: list[tuple[str, float, bool]]


@dataclass(frozen=True)
class Sample:
    """Recommendations of one output for users spread evenly over the dataset, K items for each."""

    output: str
    num_users: int
    num_items: int
    num_distinct: int
    truth: Part | None
    groups: list[Group]
    shown: list[Shown]


def sampled(model: Model, dataset: Dataset) -> Sample | None:
    """Sample recommendations of a model's first output over items; None if it has no such output.

    Every process of the model's group must call this; all get the same result.

    Args:
        model: The model.
        dataset: A dataset with the run's fields and vocabularies.
    """
    outputs = [layer for layer in model.run.network.outputs if dataset.field(layer.field).kind != "dense"]
    if not outputs or not dataset.num_examples:
        return None
    name, field = outputs[0].name, outputs[0].field
    rows = _spread(dataset.num_examples, MOST_USERS)
    parts = dataset.field(field).parts
    truth = next((part for part in reversed(parts) if part != "train"), None)
    scores_EK, units_EK = _top(model, dataset, name, rows, truth)
    counts = _counts(model, dataset, field)
    recommended = np.bincount(units_EK[units_EK >= 0], minlength=len(counts))
    shown = np.arange(min(len(rows), _SHOWN_USERS))
    if len(rows) > _SHOWN_USERS + 1:
        shown = _spread(len(rows), _SHOWN_USERS + 2)[1:-1]
    return Sample(
        output=name,
        num_users=len(rows),
        num_items=len(counts),
        num_distinct=int(np.count_nonzero(recommended)),
        truth=truth,
        groups=_groups(counts, recommended),
        shown=[
            _shown(model, dataset, field, truth, int(rows[place]), scores_EK[place], units_EK[place])
            for place in shown
        ],
    )


def _spread(number: int, most: int) -> np.ndarray:
    """At most `most` of `number` positions, spread evenly from the first to the last, int64."""
    if number <= most:
        return np.arange(number, dtype=np.int64)
    return np.arange(most, dtype=np.int64) * (number - 1) // (most - 1)


def _top(
    model: Model, dataset: Dataset, name: str, rows: np.ndarray, truth: Part | None
) -> tuple[np.ndarray, np.ndarray]:
    """Scores float32 [E, K] and units int64 [E, K] of the K best; all parts but `truth` are known."""
    network, blocks = model.network, []
    histories, k = Histories(network, dataset, truth), min(K, network.outputs[name].width)
    network.exchange.at("the report")
    step = rows_a_block(K)
    with fixed_arithmetic():
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            scores_EK, units_EK = histories.best(name, block, k)
            blocks.append((scores_EK.float().cpu().numpy(), units_EK.cpu().numpy()))
    return np.concatenate([scores for scores, _ in blocks]), np.concatenate([units for _, units in blocks])


def _counts(model: Model, dataset: Dataset, field: str) -> np.ndarray:
    """Training interactions of each feature, int64 [width]."""
    has_names = model.run.fields[field].vocabulary_digest is not None
    return dataset.vocabulary(field).counts if has_names else dataset.counts(field)


def _groups(counts: np.ndarray, recommended: np.ndarray) -> list[Group]:
    ranking = np.argsort(-counts, kind="stable")
    groups, first = [], 0
    for name, bound in _BOUNDS.items():
        last = max(first, round(bound * len(ranking)))
        members = ranking[first:last]
        shares = [int(totals[members].sum()) / max(int(totals.sum()), 1) for totals in (counts, recommended)]
        groups += [Group(name, len(members) / len(ranking), *shares)] if len(members) else []
        first = last
    return groups


def _shown(
    model: Model,
    dataset: Dataset,
    field: str,
    truth: Part | None,
    row: int,
    scores: np.ndarray,
    units: np.ndarray,
) -> Shown:
    example = np.array([row])
    is_sequence = dataset.field(field).kind == "sequence"
    before = known_parts(dataset, field, truth if is_sequence else "validation")
    items = seen_entries(dataset, field, example, before).indices.numpy()
    listed = _titles(model, field, items[-_SHOWN_ITEMS:] if is_sequence else items[:_SHOWN_ITEMS])
    aside = set() if truth is None else set(dataset.sparse(field, example, truth).indices.tolist())
    recommended = units[units >= 0]
    is_aside = (unit in aside for unit in recommended.tolist())
    rows = list(zip(_titles(model, field, recommended), scores.tolist(), is_aside, strict=False))
    return Shown(dataset.ids(example)[0], listed, len(items), is_sequence, rows)


def _titles(model: Model, field: str, units: np.ndarray) -> list[str]:
    if model.run.fields[field].vocabulary_digest is None:
        return [f"number {unit:,}" for unit in units.tolist()]
    return model.run.vocabulary(field).titles(units)
