"""Export of a dataset directory to DSSTNE's NetCDF data and index files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.data.dataset import Dataset
from widenet.data.manifest import Field, Part, column, value_column
from widenet.dsstne.data import (
    KINDS,
    NUMPY_TYPES,
    Attribute,
    SetFacts,
    create_set,
    facts_of,
    scale_of,
    stored_as,
)
from widenet.dsstne.netcdf import check_places, writing
from widenet.errors import DataError, FitError, OptionError, nearest

_KEPT = Attribute.COMPRESSED | Attribute.RECURRENT | Attribute.MUTABLE | Attribute.SPARSE_IGNORE_ZERO
"""Attributes that do not affect how a set is stored; they are written as they were read."""


_BLOCK = 65_536
_SEPARATORS = ("\t", "\n", "\r")
"""Characters that end a name in an index file."""


def export_data(
    data: Dataset | str | Path,
    out: Path | str,
    *,
    targets: Sequence[str] = (),
    features: Mapping[str, Path] | Path | None = None,
    samples: Path | None = None,
) -> None:
    """Write a dataset as one NetCDF file with a data set for each field and part.

    Data sets are named FIELD, FIELD.validation and FIELD.heldout. Fields that were imported from NetCDF keep
    their kind, type, dimensions and attributes. Other fields become Float, or Boolean UInt if they are sparse
    without values. Indexed sets are written example by example, with sorted indices. Names that are not plain
    numbers are also written to the NetCDF file.

    Args:
        data: The dataset.
        out: The NetCDF file to write; an earlier file is replaced.
        targets: Fields that outputs predict. Only these get the example weights, because DSSTNE multiplies
            sparse inputs by them too. If none is named, the sets that had weights get them, or else all sets.
        features: Index file to write for each field's features, or one for all sparse fields if they have the
            same features.
        samples: Index file to write for the examples.

    Raises:
        DataError, FitError, OptionError: All files stay as they were. They also do after an OSError, except
            that index files may already be replaced if the NetCDF file itself cannot be.
    """
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    for name in targets:
        OptionError.require(
            name in dataset.fields,
            f"must name fields; got {name!r}.{nearest(name, dataset.fields)}",
            option="targets",
        )
    named = features.values() if isinstance(features, Mapping) else [features]
    check_places([path for path in (*named, samples, Path(out)) if path is not None])
    indexes = index_files(dataset, features, samples)
    facts = facts_of(dataset.manifest)
    sets = [
        each
        for field in dataset.fields.values()
        for each in _sets(dataset, field, facts.get(field.name), targets)
    ]
    with writing(Path(out), indexes) as file:
        file.setncattr("datasets", np.uint32(len(sets)))
        for number, each in enumerate(sets):
            each.begin(file, number, dataset.num_examples)
        start = 0
        for batch in dataset.record_batches():
            for number, each in enumerate(sets):
                each.append(file, number, batch, start)
            start += batch.num_rows
        write_names(
            file,
            dataset,
            {each.field.name: number for number, each in enumerate(sets) if each.part == "train"},
        )


@dataclass
class _Set:
    """A data set to write; `position` is the number of entries written so far."""

    field: Field
    part: Part
    kind: str
    data_type: str
    attributes: Attribute
    dimensions: tuple[int, ...]
    is_target: bool
    position: int = 0

    def begin(self, file: Any, number: int, num_examples: int) -> None:
        """Write the attributes, and create the dimensions and variables."""
        create_set(
            file,
            number,
            name=column(self.field.name, self.part),
            kind=self.kind,
            data_type=self.data_type,
            attributes=self.attributes,
            dimensions=self.dimensions,
            num_examples=num_examples,
            num_entries=self.field.num_entries[self.part] if self.attributes & Attribute.SPARSE else 0,
            width=self.field.width,
        )

    def append(self, file: Any, number: int, batch: pa.RecordBatch, start: int) -> None:
        """Write the examples of a record batch, numbered from `start`."""
        stop = start + batch.num_rows
        if self.attributes & Attribute.WEIGHTED:
            file.variables[f"dataWeight{number}"][start:stop] = batch.column("weight").to_numpy()
        entries = batch.column(column(self.field.name, self.part)).flatten().to_numpy()
        if not self.attributes & Attribute.SPARSE:
            width = self.field.width
            file.variables[f"data{number}"][start * width : stop * width] = self._stored(entries)
            return
        offsets = batch.column(column(self.field.name, self.part)).offsets.to_numpy().astype(np.int64)
        offsets += self.position - offsets[0]
        file.variables[f"sparseStart{number}"][start:stop] = offsets[:-1]
        file.variables[f"sparseEnd{number}"][start:stop] = offsets[1:]
        first, self.position = self.position, self.position + len(entries)
        file.variables[f"sparseIndex{number}"][first : self.position] = entries
        if not self.attributes & Attribute.BOOLEAN:
            values = batch.column(value_column(self.field.name, self.part)).flatten().to_numpy()
            file.variables[f"sparseData{number}"][first : self.position] = self._stored(values)

    def _stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers as the file stores them."""
        kind = np.dtype(NUMPY_TYPES[self.data_type])
        if self.field.kind == "dense":
            divisor, shift = scale_of(self.data_type, self.is_target)
            numbers = (numbers + np.float32(shift)) * np.float32(divisor)
        return numbers.astype(kind).view(stored_as(self.data_type))


def _sets(dataset: Dataset, field: Field, facts: SetFacts | None, targets: Sequence[str]) -> list[_Set]:
    """Return the data sets of a field, one for each part.

    Raises FitError for a sequence, which DSSTNE does not have.
    """
    FitError.require(
        field.kind != "sequence", f"DSSTNE has no sequences; field {field.name!r} is one", place=dataset.path
    )
    before = Attribute(0) if facts is None else facts.flags
    attributes = before & _KEPT
    is_weighted = field.name in targets if targets else bool(before & Attribute.WEIGHTED) or facts is None
    if dataset.manifest.has_weights and is_weighted:
        attributes |= Attribute.WEIGHTED
    if field.kind == "sparse":
        attributes |= Attribute.SPARSE if field.has_values else Attribute.SPARSE | Attribute.BOOLEAN
    keeps_sides = facts is not None and prod(facts.dimensions) >= field.width
    return [
        _Set(
            field=field,
            part=part,
            kind=KINDS[0] if facts is None else facts.kind,
            data_type=_data_type(field, facts),
            attributes=attributes,
            dimensions=facts.dimensions if facts is not None and keeps_sides else (field.width,),
            is_target=facts is not None and facts.is_target,
        )
        for part in (field.parts if field.kind == "sparse" else ("train",))
    ]


def _data_type(field: Field, facts: SetFacts | None) -> str:
    """Return the type that the set had before, if it can hold the field's values.

    Otherwise return UInt for a sparse field without values, and Float for other fields.
    """
    if facts is None:
        return "Float" if field.has_values else "UInt"
    kind = np.dtype(NUMPY_TYPES[facts.data_type])
    if not field.has_values or kind.kind == "f":
        return facts.data_type
    divisor, shift = scale_of(facts.data_type, facts.is_target) if field.kind == "dense" else (1, 0.0)
    low, high = ((value + shift) * divisor for value in (field.min_value, field.max_value))
    holds = np.iinfo(kind).min <= low and high <= np.iinfo(kind).max
    return facts.data_type if holds else "Float"


def feature_names(dataset: Dataset, field: str) -> Iterator[str]:
    """Yield the ids of a field's features, in order."""
    for batch in dataset.vocabulary(field).record_batches():
        yield from batch.column("id").to_pylist()


def example_names(dataset: Dataset) -> Iterator[str]:
    """Yield the ids of the examples, in order."""
    for start in range(0, dataset.num_examples, _BLOCK):
        yield from dataset.ids(slice(start, start + _BLOCK))


def index_files(
    dataset: Dataset, features: Mapping[str, Path] | Path | None, samples: Path | None
) -> dict[Path, Iterator[str]]:
    """Return the names to write to each index file.

    Args:
        dataset: The dataset.
        features: Index files by field, or one file for all sparse fields if they have the same features.
        samples: Index file of the examples.

    Raises:
        OptionError: A field has no names.
        DataError: An index file cannot hold a name.
    """
    sparse = [name for name, field in dataset.fields.items() if field.kind == "sparse"]
    if isinstance(features, Path):
        _check_same(dataset, sparse)
        features = {sparse[0]: features}
    for name in features or {}:
        OptionError.require(
            name in sparse,
            f"must name sparse fields; got {name!r}.{nearest(name, sparse)}",
            option="features",
        )
    names = {path: _checked(dataset, feature_names(dataset, name)) for name, path in (features or {}).items()}
    return names if samples is None else names | {samples: _checked(dataset, example_names(dataset))}


def write_names(file: Any, dataset: Dataset, number_of: Mapping[str, int]) -> None:
    """Write the names of features and examples to a NetCDF file, except names that are plain numbers.

    The variable `indToFeatureN` names the features of data set N, and `samples` names the examples.

    Args:
        file: The NetCDF file.
        dataset: The dataset.
        number_of: Number of each field's data set.
    """
    _write(file, ("samples", "samplesDim"), dataset.num_examples, lambda: example_names(dataset))
    for name, number in number_of.items():
        field = dataset.fields[name]
        if field.kind == "sparse" and field.vocabulary is not None:
            _write(
                file,
                (f"indToFeature{number}", f"indToFeatureDim{number}"),
                field.width,
                partial(feature_names, dataset, name),
            )


def _write(file: Any, keys: tuple[str, str], count: int, names: Callable[[], Iterator[str]]) -> None:
    """Write names to a variable of a dimension (`keys`) unless they equal their indices."""
    if all(name == str(index) for index, name in enumerate(names())):
        return
    variable, dimension = keys
    file.createDimension(dimension, count)
    target, pending = file.createVariable(variable, str, (dimension,)), names()
    for start in range(0, count, _BLOCK):
        block = list(islice(pending, _BLOCK))
        target[start : start + len(block)] = np.array(block, object)


def _check_same(dataset: Dataset, fields: list[str]) -> None:
    """Raise OptionError unless there are sparse fields, and all have the same features."""
    ids = [dataset.vocabulary(name).all_ids() for name in fields]
    if not ids or any(not other.equals(ids[0]) for other in ids[1:]):
        names = ", ".join(fields) or "none"
        raise OptionError(
            f"must be FIELD=FILE for each sparse field, since their features differ; the fields are {names}",
            option="features",
        )


def _checked(dataset: Dataset, names: Iterator[str]) -> Iterator[str]:
    """Yield the names; raises DataError for one that an index file cannot hold."""
    for name in names:
        if not name or any(letter in name for letter in _SEPARATORS):
            raise DataError(f"an index file cannot hold the name {name!r}", place=dataset.path)
        yield name
