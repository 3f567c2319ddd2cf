"""Checks what the files of a dataset directory hold, whichever program wrote them; does not load torch."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.attributes import Attributes, attributes_file
from widenet.data.blocks import check_whole
from widenet.data.described import Described, described_file
from widenet.data.manifest import FILE_NAME, Field, Manifest, Part
from widenet.data.mapped import MappedFile
from widenet.data.rules import FieldLayout, checked_parts, examples_schema
from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError


def verify(folder: Path, manifest: Manifest) -> None:
    """Read every file of a dataset directory: compare its checksum, then what it holds with the manifest.

    Raises:
        DataError: A file breaks a rule of docs/data.md; the message names the first place.
    """
    for name, file in manifest.files.items():
        check_whole(folder / name, file)
    for name, field in manifest.fields.items():
        _compare(folder / FILE_NAME, f"the name of field {name!r}", name, field.name)
    layouts = [FieldLayout.of(field) for field in manifest.fields.values()]
    num_entries: dict[str, dict[Part, int]] = {
        name: dict.fromkeys(field.parts, 0) for name, field in manifest.fields.items()
    }
    num_examples = 0
    for path, batch in _batches(folder, manifest, layouts):
        num_examples += batch.num_rows
        for layout, part, entries, values in checked_parts(batch, layouts, str(path)):
            if layout.kind != "dense":
                num_entries[layout.name][part] += entries
            if values is not None and len(values):
                _check_range(path, manifest.fields[layout.name], values)
    _compare(folder / FILE_NAME, "num_examples", num_examples, manifest.num_examples)
    for name, field in manifest.fields.items():
        if field.kind != "dense":
            _compare(
                folder / FILE_NAME, f"num_entries of field {name!r}", num_entries[name], field.num_entries
            )
        if field.vocabulary is not None:
            rule = f"must list the vocabulary of field {name!r}, {field.vocabulary!r}"
            DataError.require(field.vocabulary in manifest.files, rule, place=folder / FILE_NAME)
            features = len(Vocabulary.open(folder / field.vocabulary))
            _compare(folder / field.vocabulary, f"features of field {name!r}", features, field.width)
        if attributes_file(name) in manifest.files:
            Attributes.open(folder / attributes_file(name), field.width)
        described: dict[str, int] = {}
        if described_file(name) in manifest.files:
            described = Described.open(folder / described_file(name), field.width).widths
        _compare(folder / FILE_NAME, f"descriptions of field {name!r}", described, field.described)


def _batches(
    folder: Path, manifest: Manifest, layouts: list[FieldLayout]
) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """Yield every record batch that is not empty, memory-mapped, with the columns of `layouts` alone."""
    schema = examples_schema(layouts, manifest.has_weights)
    for name in manifest.example_files:
        file = MappedFile(folder / name, None)
        types = {column.name: column.type for column in file.schema}
        are_there = all(types.get(column.name) == column.type for column in schema)
        rule = f"must have the columns {', '.join(f'{each.name} ({each.type})' for each in schema)}"
        DataError.require(are_there, rule, place=file.path)
        num_rows = sum(batch.num_rows for batch in file.batches)
        _compare(folder / FILE_NAME, f"num_rows of {name}", num_rows, manifest.files[name].num_rows)
        for batch in file.batches:
            chosen = batch.select(schema.names)
            try:
                chosen.validate(full=True)
            except pa.ArrowInvalid as error:
                raise DataError(f"{file.path}: must hold whole Arrow columns; {error}.") from error
            if chosen.num_rows:
                yield file.path, chosen


def _check_range(path: Path, field: Field, values: np.ndarray) -> None:
    """Raise DataError unless values lie between the manifest's extremes, both as float32."""
    low, high = np.float32(field.min_value), np.float32(field.max_value)
    for value in (values.min(), values.max()):
        rule = f"values must lie in [{low:g}, {high:g}], as min_value and max_value of {FILE_NAME} say"
        DataError.require(low <= value <= high, rule, place=path, column=field.name, value=value)


def _compare(place: Path, what: str, contents: object, stated: object) -> None:
    DataError.require(
        contents == stated, f"{place}: {what} must be what the files hold, {contents}; got {stated}."
    )
