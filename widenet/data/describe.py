"""Describes datasets: counts, density, the spread of interactions, and what other datasets train on."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import Location, typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import Field, Part

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}


def spread(counts: np.ndarray) -> dict[str, Any]:
    """Describe the distribution of counts, int64 [N], over examples or features.

    Returns:
        `number` of counts, their `total` and `mean`, and their `quantiles` by name: the smallest count c such
        that at least this share of all are at most c. The shares of the total that the largest 1 % and 10 %
        have, `top_1_percent` and `top_10_percent`. The coefficient `gini`, 0 if all counts are equal.
    """
    ascending = np.sort(counts)
    number, total = len(counts), int(counts.sum())

    def top(share: float) -> float:
        return int(ascending[number - math.ceil(share * number) :].sum()) / max(total, 1)

    ranked = int((np.arange(1, number + 1) * ascending).sum())
    positions = {name: max(math.ceil(share * number) - 1, 0) for name, share in QUANTILES.items()}
    return {
        "number": number,
        "total": total,
        "mean": total / max(number, 1),
        "quantiles": {name: int(ascending[at]) if number else 0 for name, at in positions.items()},
        "top_1_percent": top(0.01),
        "top_10_percent": top(0.1),
        "gini": (2 * ranked - (number + 1) * total) / (number * total) if total else 0.0,
    }


@typed
def describe(folder: Location) -> dict[str, Any]:
    """Describe a dataset as JSON values; docs/data.md explains each number.

    Args:
        folder: The dataset directory.

    Raises:
        DataError: The directory is not a dataset, or is damaged.
    """
    dataset = Dataset.open(folder)
    return {
        "name": dataset.manifest.name,
        "num_examples": dataset.num_examples,
        "has_weights": dataset.manifest.has_weights,
        "fields": {name: _field(dataset, field) for name, field in dataset.fields.items()},
        "source": dataset.manifest.source,
    }


def _field(dataset: Dataset, field: Field) -> dict[str, Any]:
    name, parts = field.name, field.parts if field.kind != "dense" else ()
    known: dict[str, Any] = {"kind": field.kind, "width": field.width, "has_values": field.has_values}
    known |= {"min_value": field.min_value, "max_value": field.max_value}
    known["parts"] = {part: _part(dataset, name, part) for part in parts}
    if field.vocabulary is not None:
        known["titles"] = dataset.vocabulary(name).num_titles
    if (attributes := dataset.attributes(name)) is not None:
        known["attributes"] = dict(attributes.kinds)
    if (described := dataset.described(name)) is not None:
        known["descriptions"] = described.facts
    return known


def _part(dataset: Dataset, field: str, part: Part) -> dict[str, Any]:
    examples, features = dataset.entry_counts(field, slice(None), part), dataset.counts(field, part)
    num_entries = int(features.sum())
    return {
        "entries": num_entries,
        "density": num_entries / max(len(examples) * len(features), 1),
        "examples_with_entries": int(np.count_nonzero(examples)),
        "features_with_entries": int(np.count_nonzero(features)),
        "activity": spread(examples),
        "popularity": spread(features),
    }


_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """Count the entries of a part that are in the train part of the same example in another dataset.

    Examples are the same if they have the same id. Features are the same if they have the same name or, if
    the field of a dataset has no names, the same index. A feature of a sequence that its example has in the
    train part, too, does not count: to come again is no secret.

    Memory holds a table of all ids of the other dataset, four bytes for each example of this one, and the
    entries of some examples.
    """
    num_common, other_index = 0, None
    if dataset.field(field).vocabulary is not None and training.field(field).vocabulary is not None:
        other_index = training.vocabulary(field).indices_of(dataset.vocabulary(field))
    comes_again = dataset.field(field).kind == "sequence" and part != "train"
    width = max(each.field(field).width for each in (dataset, training))
    # In the chunks in which they are stored: a single one might be too large for Arrow's strings.
    ids, other_ids = (
        pa.chunked_array([batch.column("id") for batch in each.record_batches()], pa.string())
        for each in (dataset, training)
    )
    other_row = pc.fill_null(pc.index_in(ids, value_set=other_ids), -1).to_numpy()
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        rows = other_row[start : start + _ROWS_AT_ONCE].astype(np.int64)
        common = np.flatnonzero(rows >= 0)
        entries = _entries(dataset, field, part, start + common, width, other_index)
        if comes_again:
            known = _entries(dataset, field, "train", start + common, width, other_index)
            entries = entries[~np.isin(entries, known)]
        trained = _entries(training, field, "train", rows[common], width)
        num_common += int(np.isin(entries, trained).sum())
    return num_common


def known_before(dataset: Dataset, field: str, part: Part, earlier: Sequence[Part]) -> int:
    """Count the distinct entries of a part that the same example has in earlier parts too."""
    num_known, width = 0, dataset.field(field).width
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, dataset.num_examples))
        entries = np.unique(_entries(dataset, field, part, rows, width))
        for each in earlier:
            is_known = np.isin(entries, _entries(dataset, field, each, rows, width))
            num_known += int(is_known.sum())
            entries = entries[~is_known]
    return num_known


def _entries(
    dataset: Dataset,
    field: str,
    part: Part,
    rows: np.ndarray,
    width: int,
    other_index: np.ndarray | None = None,
) -> np.ndarray:
    """Number the entries of some examples, int64 [Z]: position of the example * `width` + feature."""
    entries = dataset.sparse(field, rows, part)
    features = entries.indices.long().numpy() if other_index is None else other_index[entries.indices.numpy()]
    numbers: np.ndarray = entries.example_of_entry().numpy() * width + features
    return numbers[features >= 0]
