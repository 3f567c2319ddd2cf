"""Recommendations for some users."""

from dataclasses import dataclass

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.restrictions import Histories, known_parts, seen_entries
from widenet.runs import Model

K = 10
_SHOWN_USERS, _SHOWN_ITEMS = 4, 8


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
    """The K best items of one output for some users; `truth` is the part that is set aside."""

    output: str
    truth: Part | None
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
    name, field, network = outputs[0].name, outputs[0].field, model.network
    truth = next((part for part in reversed(dataset.field(field).parts) if part != "train"), None)
    rows = np.unique(np.linspace(0, dataset.num_examples - 1, _SHOWN_USERS + 2).astype(np.int64)[1:-1])
    histories, k = Histories(network, dataset, truth), min(K, network.outputs[name].width)
    network.exchange.at("the report")
    with fixed_arithmetic():
        scores_EK, units_EK = histories.best(name, rows, k)
    shown = [
        _shown(model, dataset, field, truth, int(row), scores_K.float().cpu().numpy(), units_K.cpu().numpy())
        for row, scores_K, units_K in zip(rows, scores_EK, units_EK, strict=True)
    ]
    return Sample(name, truth, shown)


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
