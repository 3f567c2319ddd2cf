"""Describes datasets: counts, density, the spread of interactions, and what other datasets train on."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import Location, typed
from widenet.data.attributes import Attributes, attributes_file
from widenet.data.dataset import Dataset
from widenet.data.described import Described, described_file
from widenet.data.manifest import Field, Manifest, Part, column
from widenet.data.mapped import MappedFile, batches_with, damaged
from widenet.data.vocabulary import Vocabulary
from widenet.stores.fetch import readable

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Spread:
    """The distribution of a total over examples or features.

    Attributes:
        number: How many there are.
        total: Sum of their counts.
        mean: Mean count.
        quantiles: Quantiles of the counts, by name.
        top_1_percent: Share of the total that the largest 1 % have.
        top_10_percent: Share of the total that the largest 10 % have.
        gini: Gini coefficient; 0 if all have the same count.
    """

    number: int
    total: int
    mean: float
    quantiles: dict[str, int]
    top_1_percent: float
    top_10_percent: float
    gini: float

    @classmethod
    def of(cls, counts: np.ndarray) -> "Spread":
        """Compute the distribution of counts, int64 [N].

        The quantile of a share is the smallest count c such that at least this share of all counts are at
        most c.
        """
        ascending = np.sort(counts)
        number, total = len(counts), int(counts.sum())

        def top(share: float) -> float:
            return int(ascending[number - math.ceil(share * number) :].sum()) / max(total, 1)

        ranked = int((np.arange(1, number + 1) * ascending).sum())
        positions = {name: max(math.ceil(share * number) - 1, 0) for name, share in QUANTILES.items()}
        return cls(
            number=number,
            total=total,
            mean=total / max(number, 1),
            quantiles={name: int(ascending[at]) if number else 0 for name, at in positions.items()},
            top_1_percent=top(0.01),
            top_10_percent=top(0.1),
            gini=(2 * ranked - (number + 1) * total) / (number * total) if total else 0.0,
        )


@dataclass(frozen=True)
class Counts:
    """Entry counts of a part of a field: of each example, int64 [N], and of each feature, int64 [width]."""

    field: str
    part: Part
    examples: np.ndarray
    features: np.ndarray


def counts(folder: Path, manifest: Manifest) -> Iterator[Counts]:
    """Yield the counts of every part of every field that is not dense.

    Memory holds a number for each example and feature.
    """
    files = [MappedFile(folder / name, manifest.files[name]) for name in manifest.example_files]
    for field in manifest.fields.values():
        for part in field.parts if field.kind != "dense" else ():
            features = np.zeros(field.width, dtype=np.int64)
            lengths = []
            name = column(field.name, part)
            list_type = pa.list_(pa.uint32())
            for file in files:
                for batch in batches_with(file, name, list_type):
                    rows = file.check_batch(batch).column(name)
                    try:
                        rows.validate(full=True)
                        np.add.at(features, rows.flatten().to_numpy(), 1)
                    except (pa.ArrowInvalid, IndexError) as error:
                        raise damaged(folder, str(error)) from error
                    lengths.append(np.diff(rows.offsets.to_numpy()).astype(np.int64))
            yield Counts(field.name, part, np.concatenate([np.zeros(0, dtype=np.int64), *lengths]), features)


@typed
def describe(folder: Location) -> dict[str, Any]:
    """Describe a dataset as JSON values; docs/data.md explains each number.

    Args:
        folder: The dataset directory.

    Raises:
        DataError: The directory is not a dataset, or is damaged.
    """
    folder = readable(folder, "dataset")
    manifest = Manifest.read(folder)
    fields: dict[str, Any] = {
        name: _field(folder, manifest, field) for name, field in manifest.fields.items()
    }
    for part in counts(folder, manifest):
        cells = manifest.num_examples * manifest.fields[part.field].width
        num_entries = int(part.features.sum())
        fields[part.field]["parts"][part.part] = {
            "entries": num_entries,
            "density": num_entries / max(cells, 1),
            "examples_with_entries": int(np.count_nonzero(part.examples)),
            "features_with_entries": int(np.count_nonzero(part.features)),
            "activity": asdict(Spread.of(part.examples)),
            "popularity": asdict(Spread.of(part.features)),
        }
    return {
        "name": manifest.name,
        "num_examples": manifest.num_examples,
        "has_weights": manifest.has_weights,
        "fields": fields,
        "source": manifest.source,
    }


def _field(folder: Path, manifest: Manifest, field: Field) -> dict[str, Any]:
    known: dict[str, Any] = {"kind": field.kind, "width": field.width, "has_values": field.has_values}
    known |= {"min_value": field.min_value, "max_value": field.max_value, "parts": {}}
    if field.vocabulary is not None:
        known["titles"] = Vocabulary.open(folder / field.vocabulary).num_titles
    if (file := attributes_file(field.name)) in manifest.files:
        known["attributes"] = dict(Attributes.open(folder / file, field.width).kinds)
    if field.described:
        known["descriptions"] = Described.open(folder / described_file(field.name), field.width).facts
    return known


_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """Count the entries of a part that are in the train part of the same example in another dataset.

    Examples are the same if they have the same id. Features are the same if they have the same name or, if
    the field of a dataset has no names, the same index. A feature of a sequence that its example has in the
    train part, too, does not count: to come again is no secret.

    Memory holds a table of all ids of the other dataset, four bytes for each example of this one, and the
    entries of some examples.
    """
    num_common, other_index = 0, _other_index(dataset, field, training)
    comes_again = dataset.field(field).kind == "sequence" and part != "train"
    width = max(each.field(field).width for each in (dataset, training))
    other_row = pc.fill_null(pc.index_in(_ids(dataset), value_set=_ids(training)), -1).to_numpy()
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


def _other_index(dataset: Dataset, field: str, training: Dataset) -> np.ndarray | None:
    """The index of each feature in the other dataset, int64 [width]; -1 if it has none.

    None if a dataset has no names, so that indices are compared.
    """
    if None in (dataset.field(field).vocabulary, training.field(field).vocabulary):
        return None
    return training.vocabulary(field).indices_of(dataset.vocabulary(field))


def _ids(dataset: Dataset) -> pa.ChunkedArray:
    """The ids of all examples, in the chunks in which they are stored.

    A single chunk might be too large for Arrow's strings.
    """
    return pa.chunked_array([batch.column("id") for batch in dataset.record_batches()], pa.string())


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
