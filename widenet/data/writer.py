"""Writes a dataset directory from record batches; it appears complete, or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.blocks import described
from widenet.data.manifest import (
    FILE_NAME,
    Facts,
    Field,
    File,
    Manifest,
    Part,
    column,
    time_column,
    value_column,
)
from widenet.data.mapped import MappedFile
from widenet.data.rules import FieldLayout, check_names, checked_parts, examples_schema
from widenet.errors import NO_ROOM, DataError, OptionError, WidenetError
from widenet.stores.durable import force_all_to_disk, put_in_place
from widenet.stores.folders import dataset_out
from widenet.stores.uri import is_uri, shown


def check_free(out: Path, overwrite: bool) -> None:
    """Raise DataError unless a dataset may be made at a path."""
    if overwrite:
        check_replaceable(out)
    else:
        DataError.require(
            not out.exists(), "is not set, and there is something", place=out, option="overwrite"
        )


def check_replaceable(out: Path) -> None:
    """Raise DataError unless a path is free, an empty folder, or a dataset with nothing else in its folder.

    The manifest tells which files are the dataset's.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        own = {FILE_NAME, *Manifest.read(out).files}
    except (WidenetError, OSError):
        raise DataError(f"{out}: only a dataset that widenet wrote is replaced; this is none.") from None
    others = sorted(path.name for path in out.iterdir() if path.name not in own)
    DataError.require(not others, "must hold a dataset and no more to be replaced", place=out, value=others)


ROWS_PER_BATCH = 16_384
ENTRIES_PER_BATCH = 2**22
"""Largest number of entries in the lists of a batch, unless it has a single row; this bounds memory."""
VOCABULARY_ROWS_PER_BATCH = 2**20
BYTES_PER_FILE = 4 * 2**30
"""A file ends with the first record batch that makes it larger; so the content alone decides the files."""

VOCABULARY_SCHEMA = pa.schema([("id", pa.string()), ("title", pa.string()), ("count", pa.int64())])


@dataclass
class _Statistics:
    num_entries: dict[Part, int] = field(default_factory=dict)
    low: float = np.inf
    high: float = -np.inf

    def add(self, part: Part, num_entries: int, values: np.ndarray | None) -> None:
        self.num_entries[part] = self.num_entries.get(part, 0) + num_entries
        if values is not None and len(values):
            self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def of(self, layout: FieldLayout, vocabulary: str | None) -> Field:
        low, high = (self.low, self.high) if self.low <= self.high else (1.0, 1.0)
        return Field(
            name=layout.name,
            kind=layout.kind,
            width=layout.width,
            num_entries=self.num_entries,
            has_values=layout.has_values or layout.kind == "dense",
            has_times=layout.has_times,
            min_value=low,
            max_value=high,
            vocabulary=vocabulary,
            described=dict(layout.described),
        )


def vocabulary_rows(
    width: int,
    ids: Sequence[str] | None = None,
    titles: Sequence[str | None] | None = None,
    counts: np.ndarray | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a vocabulary in batches.

    Args:
        width: Number of features.
        ids: Ids of the features; None uses their indices.
        titles: Titles of the features; None for a feature without one.
        counts: Interactions of each feature, int64 [width], read batch by batch; None writes zeros.
    """
    for start in range(0, width, VOCABULARY_ROWS_PER_BATCH):
        rows = range(start, min(start + VOCABULARY_ROWS_PER_BATCH, width))
        own = slice(rows.start, rows.stop)
        columns = [
            pa.array([str(index) for index in rows] if ids is None else ids[own], pa.string()),
            pa.nulls(len(rows), pa.string()) if titles is None else pa.array(titles[own], pa.string()),
            pa.array(np.zeros(len(rows), np.int64) if counts is None else counts[own]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=VOCABULARY_SCHEMA)


def vocabulary_file(name: str) -> str:
    """File name of a field's vocabulary."""
    return f"{name}.vocabulary.arrow"


@contextmanager
def publication(out: Path, *, overwrite: bool = False, is_repeated: bool = False) -> Iterator[Path]:
    """Make a temporary folder that is renamed to `out` when the block ends, and removed if the block fails.

    If `out` is a URI, the folder is published there.

    Args:
        out: The directory or URI.
        overwrite: Whether to replace an earlier dataset when the block ends.
        is_repeated: For a URI, whether an earlier attempt may have published the same dataset.

    Raises:
        DataError: `out` exists and `overwrite` is not true, or it holds something else than a dataset.
        OptionError: A dataset in a store was to be replaced.
        StoreError: The store refuses.
        OSError: Writing failed; the error names `out` if the disk is full.
    """
    if is_uri(out):
        if overwrite:
            raise OptionError(f"`overwrite` is for local datasets; got {shown(out)}.")
        with dataset_out(out, is_repeated) as place, publication(place) as folder:
            yield folder
        return
    check_free(out, overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{out}: {out.parent} must be a folder; it is or lies below a file.") from None
    folder = out.parent / f".{out.name}.{secrets.token_hex(4)}.partial"
    folder.mkdir()
    try:
        yield folder
        force_all_to_disk(folder)
        if overwrite:
            check_replaceable(out)  # somebody may have put something there meanwhile
        put_in_place(folder, out)
    except OSError as error:
        # A failed write names no file, and Arrow has messages of its own.
        if error.filename is None and error.errno in NO_ROOM:
            error.filename, error.strerror = str(out), os.strerror(error.errno)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_dataset(
    out: Path,
    *,
    layouts: Sequence[FieldLayout],
    batches: Iterable[pa.RecordBatch],
    vocabularies: Mapping[str, Iterable[pa.RecordBatch]],
    name: str | None = None,
    has_weights: bool = False,
    source: Facts | None = None,
    overwrite: bool = False,
    beside: Sequence[Path] = (),
) -> Manifest:
    """Publish a dataset directory made from record batches; see `write_contents` for their columns."""
    with publication(out, overwrite=overwrite) as folder:
        return write_contents(
            folder,
            name=name or out.name,
            layouts=layouts,
            batches=batches,
            vocabularies=vocabularies,
            has_weights=has_weights,
            source=source or {},
            beside=beside,
        )


def write_contents(
    folder: Path,
    *,
    name: str,
    layouts: Sequence[FieldLayout],
    batches: Iterable[pa.RecordBatch],
    vocabularies: Mapping[str, Iterable[pa.RecordBatch]],
    has_weights: bool,
    source: Facts,
    beside: Sequence[Path] = (),
    rows_per_batch: int = ROWS_PER_BATCH,
    bytes_per_file: int = BYTES_PER_FILE,
) -> Manifest:
    """Write example files, vocabularies and the manifest into a folder.

    The files depend on the rows alone, not on the batches in which they come.

    Args:
        folder: The folder, which must exist.
        name: Name of the dataset.
        layouts: The fields.
        batches: The columns of `examples_schema`, in batches of any length; indices ascend within a row and
            do not repeat.
        vocabularies: For some of the sparse fields, batches of `id`, `title` (may be null) and `count`, one
            row for each feature.
        has_weights: Whether the batches have example weights.
        source: Facts about how the dataset was made.
        beside: Finished Arrow files to copy, such as the attributes of items.
        rows_per_batch: Rows of a stored batch.
        bytes_per_file: Size at which a file ends; see `BYTES_PER_FILE`.

    Raises:
        DataError: A row breaks a rule; the message names the example and the column.
    """
    check_names(layouts)
    statistics = {layout.name: _Statistics(dict.fromkeys(layout.parts, 0)) for layout in layouts}
    schema = examples_schema(layouts, has_weights)
    checked = _checked(rebatched(batches, schema, rows_per_batch), layouts, statistics, name)
    files = _write_examples(folder, checked, schema, bytes_per_file)
    num_examples = sum(file.num_rows for file in files.values())
    vocabulary_of: dict[str, str] = {}
    for layout in layouts:
        if layout.name in vocabularies:
            path = folder / vocabulary_file(layout.name)
            files[path.name] = _write_vocabulary(path, vocabularies[layout.name])
            vocabulary_of[layout.name] = path.name
            named, rule = files[path.name].num_rows, f"the vocabulary must name {layout.width:,} features"
            DataError.require(named == layout.width, rule, place=f"{name}: {layout.name}", value=named)
    files |= {path.name: _copied(path, folder) for path in beside}
    manifest = Manifest(
        name=name,
        num_examples=num_examples,
        has_weights=has_weights,
        fields={
            layout.name: statistics[layout.name].of(layout, vocabulary_of.get(layout.name))
            for layout in layouts
        },
        files=files,
        source=dict(source),
    )
    manifest.write(folder)
    return manifest


def _write_examples(
    folder: Path, batches: Iterator[pa.RecordBatch], schema: pa.Schema, bytes_per_file: int
) -> dict[str, File]:
    files: dict[str, File] = {}
    batch = next(batches, None)
    while batch is not None or not files:
        path = folder / f"examples-{len(files):05d}.arrow"
        num_rows = 0
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            while batch is not None and (num_rows == 0 or sink.tell() < bytes_per_file):
                writer.write_batch(batch)
                num_rows += batch.num_rows
                batch = next(batches, None)
        written = MappedFile(path, None)
        files[path.name] = described(path, num_rows, written.bodies(written.batches))
    return files


def rebatched(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int, entries: int = ENTRIES_PER_BATCH
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows under `schema` in the longest batches within the limits.

    A batch has at most `rows` rows, and at most `entries` entries in its lists unless it is a single row.
    """
    pending: list[pa.RecordBatch] = []
    held_rows, held_entries = 0, 0
    for batch in batches:
        rest = batch.select(schema.names).cast(schema)
        ends, start = np.cumsum(_entries_of_rows(rest)), 0
        while start < rest.num_rows:
            before = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, before + entries - held_entries, side="right")) - start
            room = min(rows - held_rows, fitting)
            if room <= 0 and held_rows:
                yield pa.concat_batches(pending)
                pending, held_rows, held_entries = [], 0, 0
                continue
            piece = rest.slice(start, max(room, 1))
            pending.append(piece)
            start += piece.num_rows
            held_rows += piece.num_rows
            held_entries += int(ends[start - 1]) - before
    if pending:
        yield pa.concat_batches(pending)


def _entries_of_rows(batch: pa.RecordBatch) -> np.ndarray:
    """Number of entries in the lists of each row, int64 [rows]."""
    lengths = np.zeros(batch.num_rows, dtype=np.int64)
    for values in batch.columns:
        if pa.types.is_list(values.type):
            lengths += pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return lengths


def _write_vocabulary(path: Path, batches: Iterable[pa.RecordBatch]) -> File:
    num_rows = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        for batch in rebatched(batches, VOCABULARY_SCHEMA, VOCABULARY_ROWS_PER_BATCH):
            writer.write_batch(batch)
            num_rows += batch.num_rows
    return described(path, num_rows)


def _copied(path: Path, folder: Path) -> File:
    """Copy an Arrow file into a folder, and describe it."""
    copy = folder / path.name
    shutil.copyfile(path, copy)
    with pa.memory_map(str(copy)) as mapped:
        num_rows = pa.ipc.open_file(mapped).read_all().num_rows
    return described(copy, num_rows)


def _checked(
    batches: Iterable[pa.RecordBatch],
    layouts: Sequence[FieldLayout],
    statistics: Mapping[str, _Statistics],
    name: str,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for layout, part, num_entries, values in checked_parts(batch, layouts, name):
            statistics[layout.name].add(part, num_entries, values)
        yield batch


_EXAMPLES_AT_ONCE = 1024
"""Examples whose entries are in memory together. The number is small, because an example may have many."""


class SortedEntries:
    """A stream of entries in ascending order of example and feature, to be taken piece by piece.

    Its batches have the columns example, feature, value, and perhaps time.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], has_times: bool = False) -> None:
        self._schema = _ENTRIES.append(pa.field("time", pa.float64())) if has_times else _ENTRIES
        self._batches = iter(batches)
        self._pending: list[pa.RecordBatch] = []

    def until(self, stop: int) -> pa.Table:
        """Take all entries of the examples before `stop` that were not taken yet.

        Returns:
            The columns example, feature, value, and perhaps time.
        """
        taken: list[pa.RecordBatch] = []
        while True:
            batch = self._pending.pop() if self._pending else next(self._batches, None)
            if batch is None:
                break
            first_beyond = int(np.searchsorted(batch.column(0).to_numpy(), stop))
            taken.append(batch.slice(0, first_beyond))
            if first_beyond < batch.num_rows:
                self._pending.append(batch.slice(first_beyond))
                break
        return pa.Table.from_batches(taken, schema=self._schema)


_ENTRIES = pa.schema([("example", pa.int64()), ("feature", pa.uint32()), ("value", pa.float32())])


def assembled(
    ids: Iterable[pa.RecordBatch],
    parts: Mapping[Part, SortedEntries],
    field: str,
    has_values: bool,
    further: Mapping[str, SortedEntries] | None = None,
    has_times: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the example columns in record batches.

    Args:
        ids: The ids of the examples, and further columns beside them, in order.
        parts: The entries of each part of the field.
        field: Name of the field.
        has_values: Whether to store the values.
        further: The entries of other fields, which have no values, by name.
        has_times: Whether to store the times.
    """
    start = 0
    for names in (
        each.slice(first, _EXAMPLES_AT_ONCE)
        for each in ids
        for first in range(0, each.num_rows, _EXAMPLES_AT_ONCE)
    ):
        stop = start + names.num_rows
        columns: dict[str, pa.Array] = dict(zip(names.schema.names, names.columns, strict=True))
        for part, entries in parts.items():
            table = entries.until(stop)
            columns[column(field, part)] = _lists(table, "feature", start, names.num_rows)
            if has_values:
                columns[value_column(field, part)] = _lists(table, "value", start, names.num_rows)
            if has_times:
                columns[time_column(field, part)] = _lists(table, "time", start, names.num_rows)
        for name, entries in (further or {}).items():
            columns[name] = _lists(entries.until(stop), "feature", start, names.num_rows)
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        start = stop


def _lists(table: pa.Table, entry: str, first: int, num_rows: int) -> pa.Array:
    """Make a column with a list of entries for each example from `first` on."""
    offsets = np.zeros(num_rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(table.column("example").to_numpy() - first, minlength=num_rows), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), table.column(entry).combine_chunks())
