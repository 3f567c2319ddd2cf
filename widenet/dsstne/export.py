"""A dataset directory, written as DSSTNE's NetCDF data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.data.dataset import Dataset
from widenet.data.manifest import Field, Part, column, value_column
from widenet.dsstne.data import FACTS
from widenet.dsstne.data_set import KINDS, NUMPY_TYPES, TYPES, Attribute, scale_of, stored_as
from widenet.dsstne.names import index_files, write_names
from widenet.dsstne.netcdf import as_characters, writing
from widenet.dsstne.places import check_places
from widenet.errors import FitError, OptionError, did_you_mean

_KEPT = Attribute.COMPRESSED | Attribute.RECURRENT | Attribute.MUTABLE | Attribute.SPARSE_IGNORE_ZERO
"""Attributes that say nothing of the form of a set, and are written as they were read."""
_UINT32_ENTRIES = 2**32


def export_data(
    data: Dataset | str | Path,
    out: Path | str,
    *,
    targets: Sequence[str] = (),
    features: Mapping[str, Path] | Path | None = None,
    samples: Path | None = None,
) -> None:
    """Write a dataset as one NetCDF file, a data set for each field and part; a file of that name is
    replaced.

    A set is called as its field, FIELD.validation or FIELD.heldout. What was read from NetCDF gets the kind,
    type, dimensions and attributes back that it had; other fields are Float, sparse ones without values
    Boolean UInt. An indexed set is written example by example, and its indices ascend.
    targets: fields that outputs are asked for. Example weights stand beside these alone; beside the sets that
    had them, or else beside all, if none is named: DSSTNE multiplies a sparse input by them too.
    features, samples: index files to write, of each field's features, or of those that all sparse fields
    have, and of the examples. Names also stand in the file itself, where they are not mere numbers. Raises
    DataError, FitError, OptionError; then all files stay as they were. So they do after an OSError, unless a
    file that is whole cannot take its place: index files before it have taken theirs.
    """
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    for name in targets:
        if name not in dataset.fields:
            raise OptionError(
                f"`targets` must name fields; got {name!r}.{did_you_mean(name, dataset.fields)}"
            )
    more = (
        {f"`features` {name}": path for name, path in features.items()}
        if isinstance(features, Mapping)
        else {"`features`": features}
    )
    given = {**more, "`samples`": samples, "FILE": Path(out)}
    check_places({option: path for option, path in given.items() if path is not None})
    named = index_files(dataset, features, samples)
    written = [each for field in dataset.fields.values() for each in _sets(dataset, field, set(targets))]
    with writing(Path(out), named) as file:
        file.setncattr("datasets", np.uint32(len(written)))
        for number, each in enumerate(written):
            each.begin(file, number, dataset.num_examples)
        start = 0
        for batch in dataset.record_batches():
            for number, each in enumerate(written):
                each.append(file, number, batch, start)
            start += batch.num_rows
        write_names(
            file,
            dataset,
            {each.field.name: number for number, each in enumerate(written) if each.part == "train"},
        )


@dataclass
class _Set:
    """A data set to be written. position: how many of its entries are written."""

    field: Field
    part: Part
    kind: str
    data_type: str
    attributes: Attribute
    dimensions: tuple[int, ...]
    is_target: bool
    position: int = 0

    def begin(self, file: Any, number: int, num_examples: int) -> None:
        """Write its attributes, and make its dimensions and variables."""
        file.setncattr(f"name{number}", as_characters(column(self.field.name, self.part)))
        sides = dict(zip(("width", "height", "length"), self.dimensions, strict=False))
        whole = {
            "attributes": int(self.attributes),
            "kind": KINDS.index(self.kind),
            "dataType": TYPES.index(self.data_type),
        }
        for name, value in {**whole, "dimensions": len(sides), **sides}.items():
            file.setncattr(f"{name}{number}", np.uint32(value))
        file.createDimension(f"examplesDim{number}", num_examples)
        file.createDimension(f"uniqueExamplesDim{number}", num_examples)
        if self.attributes & Attribute.WEIGHTED:
            file.createVariable(f"dataWeight{number}", "f4", (f"examplesDim{number}",))
        if not self.attributes & Attribute.SPARSE:
            size = 1 if self.attributes & Attribute.BOOLEAN else self.field.width
            file.createDimension(f"dataDim{number}", num_examples * size)
            file.createVariable(f"data{number}", stored_as(self.data_type), (f"dataDim{number}",))
            return
        num_entries = self.field.num_entries[self.part]
        file.createDimension(f"sparseDataDim{number}", max(1, num_entries))
        for name in (f"sparseStart{number}", f"sparseEnd{number}"):
            file.createVariable(
                name, "u4" if num_entries < _UINT32_ENTRIES else "u8", (f"uniqueExamplesDim{number}",)
            )
        columns = {f"sparseIndex{number}": "u4"}
        if not self.attributes & Attribute.BOOLEAN:
            columns[f"sparseData{number}"] = stored_as(self.data_type)
        for name, kind in columns.items():
            variable = file.createVariable(name, kind, (f"sparseDataDim{number}",))
            if not num_entries:
                variable[:] = np.zeros(1, variable.dtype)

    def append(self, file: Any, number: int, batch: pa.RecordBatch, start: int) -> None:
        """Write the examples of a record batch, of which the first is number `start`."""
        stop = start + batch.num_rows
        if self.attributes & Attribute.WEIGHTED:
            file.variables[f"dataWeight{number}"][start:stop] = batch.column("weight").to_numpy()
        entries = batch.column(column(self.field.name, self.part)).flatten().to_numpy()
        if not self.attributes & Attribute.SPARSE:
            size = 1 if self.attributes & Attribute.BOOLEAN else self.field.width
            file.variables[f"data{number}"][start * size : stop * size] = self._stored(entries)
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
        """The numbers as the file holds them."""
        kind = np.dtype(NUMPY_TYPES[self.data_type])
        if self.field.kind == "dense":
            divisor, shift = scale_of(self.data_type, self.is_target)
            numbers = (numbers + np.float32(shift)) * np.float32(divisor)
        return numbers.astype(kind).view(stored_as(self.data_type))


def _sets(dataset: Dataset, field: Field, targets: set[str]) -> list[_Set]:
    """What a field is written as: a set for each of its parts; raises FitError for a sequence, which
    DSSTNE does not have.
    """
    if field.kind == "sequence":
        raise FitError(f"{dataset.path}: DSSTNE has no sequences; field {field.name!r} is one. Leave it out.")
    known = dataset.manifest.source.get(FACTS)
    facts = known.get(field.name) if isinstance(known, dict) else None
    facts = facts if isinstance(facts, dict) else {}
    before = Attribute(0)
    for name in _texts(facts.get("attributes")):
        before |= Attribute.__members__.get(name, Attribute(0))
    attributes = before & _KEPT
    is_weighted = field.name in targets if targets else bool(before & Attribute.WEIGHTED) or not facts
    if dataset.manifest.has_weights and is_weighted:
        attributes |= Attribute.WEIGHTED
    if field.kind == "sparse" and not field.has_values:
        attributes |= Attribute.BOOLEAN
    if field.kind == "sparse" and not (
        before and not before & Attribute.SPARSE and _has_one_each(dataset, field)
    ):
        attributes |= Attribute.SPARSE
    sides = facts.get("dimensions")
    dimensions = tuple(side for side in sides if isinstance(side, int)) if isinstance(sides, list) else ()
    is_target = facts.get("is_target") is True
    return [
        _Set(
            field=field,
            part=part,
            kind=str(facts["kind"]) if facts.get("kind") in KINDS else KINDS[0],
            data_type=_data_type(field, facts.get("data_type"), is_target),
            attributes=attributes,
            dimensions=(
                dimensions
                if len(dimensions) in (1, 2, 3) and prod(dimensions) >= field.width
                else (field.width,)
            ),
            is_target=is_target,
        )
        for part in (field.parts if field.kind == "sparse" else ("train",))
    ]


def _data_type(field: Field, before: object, is_target: bool) -> str:
    """The type that a set had, if it holds the field's values; else UInt for a sparse field without
    values, and Float.
    """
    if not field.has_values:
        return before if isinstance(before, str) and before in TYPES else "UInt"
    if not isinstance(before, str) or before not in TYPES:
        return "Float"
    kind = np.dtype(NUMPY_TYPES[before])
    divisor, shift = scale_of(before, is_target) if field.kind == "dense" else (1, 0.0)
    low, high = ((value + shift) * divisor for value in (field.min_value, field.max_value))
    holds = kind.kind == "f" or (np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return before if holds else "Float"


def _has_one_each(dataset: Dataset, field: Field) -> bool:
    """Whether every example has one entry, and the field one part."""
    if field.parts != ("train",) or field.num_entries["train"] != dataset.num_examples:
        return False
    return all(
        bool((np.diff(batch.column(field.name).offsets.to_numpy()) == 1).all())
        for batch in dataset.record_batches()
    )


def _texts(found: object) -> list[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
