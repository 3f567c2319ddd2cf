"""DSSTNE's data sets in NetCDF files, and their import into a dataset directory."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.data.manifest import MAX_WIDTH, Facts, Manifest, value_column
from widenet.data.messages import ignore_message
from widenet.data.rules import FieldLayout
from widenet.data.writer import ROWS_PER_BATCH, publication, vocabulary_rows, write_contents
from widenet.dsstne.netcdf import Column, NetcdfFile, as_floats, read_names, reading
from widenet.errors import CapacityError, DataError, OptionError, nearest

NUMBERS_PER_BLOCK = 2**24
"""Maximum of numbers of one data set in memory, unless a single row has more, besides narrow gaps."""
_NARROW_GAP = 512
"""Ranges of a variable with at most this many numbers between them are read together, with this gap."""


class Attribute(IntFlag):
    """The attributes of a data set, with the codes of the files."""

    SPARSE = 1
    BOOLEAN = 2
    COMPRESSED = 4
    RECURRENT = 8
    MUTABLE = 16
    SPARSE_IGNORE_ZERO = 32
    INDEXED = 64
    WEIGHTED = 128


KINDS = ("Numeric", "Image", "Audio")
TYPES = ("UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char")
"""DSSTNE's types, in the order of their codes."""
_SCALES = {"RGB8": (256, 0.5), "RGB16": (65_536, 0.5), "UChar": (256, 0.5), "Char": (128, 0.0)}
"""Divisor of dense 8-bit and 16-bit numbers, and the shift that inputs subtract afterwards."""
_SIDES = ("width", "height", "length")


@dataclass(frozen=True)
class Rows:
    """A range of examples of a sparse set.

    Attributes:
        counts: Entries per example, int64 [E].
        indices: Feature indices, uint32 [Z]; each example's ascend without repeats.
        values: float32 [Z], or None.
        merged: Number of repeated indices that were merged.
    """

    counts: NDArray[np.int64]
    indices: NDArray[np.uint32]
    values: NDArray[np.float32] | None
    merged: int = 0


@dataclass(frozen=True)
class DataSet:
    """Data set number `number` of a file."""

    file: NetcdfFile
    number: int
    name: str
    kind: str
    data_type: str
    attributes: Attribute
    dimensions: tuple[int, ...]
    num_examples: int

    @classmethod
    def of(cls, file: NetcdfFile, number: int) -> "DataSet":
        """Read the attributes of a data set; raises DataError for the first missing or wrong one."""
        name = file.text(f"name{number}")
        num_sides = file.whole(f"dimensions{number}", minimum=1, maximum=len(_SIDES))
        kind = file.choice(f"kind{number}", KINDS, "Numeric")
        data_type = file.choice(f"dataType{number}", TYPES)
        attributes = file.whole(f"attributes{number}", maximum=2 * max(Attribute) - 1)
        sides = tuple(file.whole(f"{side}{number}", minimum=1) for side in _SIDES[:num_sides])
        num_examples = file.length(f"examplesDim{number}") or 0
        found = cls(file, number, name, kind, data_type, Attribute(attributes), sides, num_examples)
        rule = f"must have an example, and at most {MAX_WIDTH:,} features"
        DataError.require(num_examples and found.width <= MAX_WIDTH, rule, place=found.place)
        return found

    @property
    def place(self) -> str:
        """The beginning of messages about the data set."""
        return f"{self.file.path}: data set {self.name!r}"

    @property
    def width(self) -> int:
        """The product of the dimensions."""
        return prod(self.dimensions)

    @property
    def is_sparse(self) -> bool:
        """Whether examples are lists of features.

        A dense Boolean set counts as sparse: it stores the index of each example's one feature.
        """
        return bool(self.attributes & (Attribute.SPARSE | Attribute.BOOLEAN))

    @property
    def has_values(self) -> bool:
        """Whether a sparse set has a number beside each index."""
        return not self.attributes & Attribute.BOOLEAN

    @cached_property
    def _num_rows(self) -> int:
        """Number of stored rows; several examples of an indexed set may share one."""
        unique = self.file.length(f"uniqueExamplesDim{self.number}")
        return self.num_examples if unique is None or not self.attributes & Attribute.INDEXED else unique

    def _column(self, name: str, length: int | None = None) -> Column:
        takes_characters = self.data_type == "Char" and name in ("data", "sparseData")
        return self.file.column(f"{name}{self.number}", length, takes_characters=takes_characters)

    def _stored_rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """The stored row of each example."""
        if not self.attributes & Attribute.INDEXED:
            return np.arange(start, stop, dtype=np.int64)
        rows = whole(self._column("index", self.num_examples), np.array([start]), np.array([stop]))
        self._check(
            rows,
            (rows >= 0) & (rows < self._num_rows),
            start,
            f"index{self.number} must lie in [0, {self._num_rows:,})",
        )
        return rows

    def _extents(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the entries of each example of a sparse set begin and end."""
        rows = self._stored_rows(start, stop)
        starts, ends = (
            whole(self._column(name, self._num_rows), rows, rows + 1) for name in ("sparseStart", "sparseEnd")
        )
        total = len(self._column("sparseIndex"))
        rule = f"sparseStart{self.number} must be at most sparseEnd{self.number}, and that at most {total:,}"
        valid = (starts >= 0) & (starts <= ends) & (ends <= total)
        if not valid.all():
            at = int(np.argmin(valid))
            raise DataError(
                f"{rule}; example {start + at:,} has {starts[at]:,} to {ends[at]:,}", place=self.place
            )
        return starts, ends

    def fitting(self, start: int, stop: int) -> int:
        """Return the end of the largest block from `start` that fits in memory; at least one example."""
        if self.attributes & Attribute.SPARSE:
            starts, ends = self._extents(start, stop)
            fitting = int(np.searchsorted(np.cumsum(ends - starts), NUMBERS_PER_BLOCK, side="right"))
        else:
            fitting = NUMBERS_PER_BLOCK // (1 if self.is_sparse else self.width)
        return min(stop, start + max(1, fitting))

    def rows(self, start: int, stop: int, width: int) -> Rows:
        """Read examples of a sparse set, or of a dense Boolean set with one feature per example.

        Raises DataError for an index that is not below `width`, and for values that are not finite.
        """
        if not self.attributes & Attribute.SPARSE:
            hot = self._dense(start, stop, 1)
            whole = hot.astype(np.int64)
            self._check(
                hot,
                (whole == hot) & (hot >= 0) & (whole < width),
                start,
                f"data{self.number} must lie in [0, {width:,})",
            )
            return Rows(np.ones(stop - start, dtype=np.int64), whole.astype(np.uint32), None)
        starts, ends = self._extents(start, stop)
        counts = ends - starts
        indices = gathered(self._column("sparseIndex"), starts, ends)
        last = np.cumsum(counts)
        self._check(
            indices,
            (indices >= 0) & (indices < width),
            start,
            f"sparseIndex{self.number} must lie in [0, {width:,})",
            last,
        )
        values = None
        if self.has_values:
            stored = gathered(self._column("sparseData", len(self._column("sparseIndex"))), starts, ends)
            values = as_floats(stored)
            self._check(
                stored,
                np.isfinite(values),
                start,
                f"sparseData{self.number} must hold finite numbers of float32",
                last,
            )
        rows = _sorted_rows(counts, indices.astype(np.uint32), values)
        if rows.values is not None and rows.merged:
            rule = f"sparseData{self.number} must hold numbers whose sum is finite where an index repeats"
            self._check(rows.values, np.isfinite(rows.values), start, rule, np.cumsum(rows.counts))
        return rows

    def dense_rows(self, start: int, stop: int, is_target: bool) -> NDArray[np.float32]:
        """Read examples of a dense set, float32 [E * width], with 8-bit and 16-bit numbers scaled."""
        stored = self._dense(start, stop, self.width)
        divisor, shift = _SCALES.get(self.data_type, (1, 0.0))
        numbers = as_floats(stored) / np.float32(divisor) - np.float32(0.0 if is_target else shift)
        last = np.arange(1, stop - start + 1) * self.width
        self._check(
            stored,
            np.isfinite(numbers),
            start,
            f"data{self.number} must hold finite numbers of float32",
            last,
        )
        return numbers

    def weights(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """Read the weights of examples, float32 [E]; None if the set has no weights."""
        if not self.attributes & Attribute.WEIGHTED:
            return None
        stored = self._column("dataWeight", self.num_examples).numbers(start, stop)
        weights = as_floats(stored)
        valid = np.isfinite(weights) & (weights >= 0)
        self._check(stored, valid, start, f"dataWeight{self.number} must hold finite numbers of at least 0")
        return weights

    def _dense(self, start: int, stop: int, size: int) -> NDArray[Any]:
        column, rows = self._column("data", self._num_rows * size), self._stored_rows(start, stop)
        return gathered(column, rows * size, (rows + 1) * size)

    def _check(
        self,
        numbers: NDArray[Any],
        valid: NDArray[np.bool_],
        start: int,
        rule: str,
        ends: NDArray[np.int64] | None = None,
    ) -> None:
        """Raise DataError for the first number that is not valid.

        Args:
            numbers: The stored numbers.
            valid: Whether each number is valid.
            start: The first example.
            rule: The rule for the message.
            ends: End of each example's numbers; None if each example has one.
        """
        if not valid.all():
            at = int(np.argmin(valid))
            owner = start + int(np.searchsorted(ends, at, side="right")) if ends is not None else start + at
            raise DataError(f"{rule}; example {owner:,} has {numbers[at]}", place=self.place)


def gathered(column: Column, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any]:
    """Return the numbers of some ranges, concatenated; ranges close together are read in one go."""
    order = np.argsort(starts, kind="stable")
    reach = np.maximum.accumulate(ends[order])
    wide = np.flatnonzero(starts[order][1:] > reach[:-1] + _NARROW_GAP)
    reads, shifts, total = [], np.empty_like(starts), 0
    for together in np.split(order, wide + 1):
        low, high = int(starts[together[0]]), int(ends[together].max())
        reads.append(column.numbers(low, high))
        shifts[together] = total - low
        total += high - low
    counts = ends - starts
    positions = np.repeat(starts + shifts - np.r_[0, np.cumsum(counts)[:-1]], counts)
    numbers: NDArray[Any] = np.concatenate(reads)[positions + np.arange(len(positions))]
    return numbers


def whole(column: Column, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what `gathered` does as int64; raises DataError unless the numbers are whole and below 2^63."""
    stored = gathered(column, starts, ends)
    numbers = stored.astype(np.int64)
    DataError.require(
        np.array_equal(numbers, stored)
        and (stored.dtype.kind != "u" or not len(numbers) or int(numbers.min()) >= 0),
        "must hold whole numbers below 2^63; it holds others",
        place=column.place,
    )
    return numbers


def _sorted_rows(
    counts: NDArray[np.int64], indices: NDArray[np.uint32], values: NDArray[np.float32] | None
) -> Rows:
    """Return the rows with sorted indices; the values of repeated indices are added up."""
    owners = np.repeat(np.arange(len(counts), dtype=np.uint64), counts)
    keys = (owners << np.uint64(32)) | indices
    if len(keys) < 2 or bool((keys[1:] > keys[:-1]).all()):
        return Rows(counts, indices, values)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
    if values is not None:
        values = as_floats(np.add.reduceat(values[order].astype(np.float64), firsts))
    counts = np.bincount((keys[firsts] >> np.uint64(32)).astype(np.int64), minlength=len(counts))
    return Rows(counts, keys[firsts].astype(np.uint32), values, len(keys) - len(firsts))


FACTS = "dsstne"
"""Key in the `source` of a dataset's manifest that holds the facts of each DSSTNE data set, by field."""
NUMBERS_PER_BATCH = 2**24
_MAX_DENSE_WIDTH = 2**31 - 1
"""Maximum of numbers per example of a dense field: Arrow's limit for lists of fixed size."""
_NAME_BYTES = 32
"""Least bytes of a feature's name on disk."""


def import_data(
    sources: Sequence[Path | str],
    out: Path | str,
    *,
    features: Mapping[str, Path | str] | Path | str | None = None,
    samples: Path | str | None = None,
    targets: Sequence[str] = (),
    only: Sequence[str] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Import all data sets of some NetCDF files as a dataset; each becomes a field of the same name.

    Sparse data sets become sparse fields. Dense Boolean data sets do too, with one feature per example.
    Other dense data sets become dense fields.

    Numbers become float32. The indices of an example are sorted, and the values of repeated indices are
    added up. Memory holds about 2^24 numbers of each data set, and the names.

    Args:
        sources: The NetCDF files.
        out: The dataset directory to make.
        features: Index file of every sparse field, or index files by field. If an index file names fewer
            features than the data set is wide, the padding is dropped.
        samples: Index file of the examples.
        targets: Data sets that outputs predict. Their dense 8-bit numbers v become v / 256 or v / 128, and
            RGB16 becomes v / 65536. In other data sets, the inputs, unsigned ones become v / 256 - 0.5.
        only: Data sets to import; others are left out. Default: all.
        name: Name of the dataset; the name of the first file if not given.
        overwrite: Whether to replace an earlier dataset at `out`, once the new one is whole.
        on_progress: Receives a line for each phase.

    Returns:
        The manifest of the new dataset.

    Raises:
        DataError: A file breaks a rule; the message names file, data set, rule and value.
        CapacityError: The features do not fit on disk.
    """
    OptionError.require(sources, "must be at least one NetCDF file", option="sources")
    paths = [Path(source) for source in sources]
    say = on_progress or ignore_message
    with publication(Path(out), overwrite=overwrite) as folder, ExitStack() as stack:
        files = [stack.enter_context(reading(path)) for path in paths]
        say(f"reading {', '.join(path.name for path in paths)} as netcdf")
        sets = [
            DataSet.of(file, number) for file in files for number in range(file.whole("datasets", minimum=1))
        ]
        sets = [each for each in sets if only is None or each.name in only]
        DataError.require(sets, f"must hold one of the data sets {', '.join(only or ())}", place=paths[0])
        _check_sets(sets)
        fields = _fields(sets, features, targets)
        _check_room(fields, folder)
        facts: Facts = {
            "sources": [path.name for path in paths],
            FACTS: {each.layout.name: each.facts() for each in fields},
        }
        names = None if samples is None else _example_names(sets[0], Path(samples))
        say("writing")
        dense = sum(each.layout.width for each in fields if each.layout.kind == "dense")
        return write_contents(
            folder,
            name=name or paths[0].name.split(".")[0],
            layouts=[each.layout for each in fields],
            batches=_batches(fields, sets, names, facts),
            vocabularies={
                each.layout.name: each.vocabulary() for each in fields if each.layout.kind == "sparse"
            },
            has_weights=any(each.attributes & Attribute.WEIGHTED for each in sets),
            source=facts,
            rows_per_batch=max(1, min(ROWS_PER_BATCH, NUMBERS_PER_BATCH // max(1, dense))),
        )


@dataclass
class _Field:
    """A field of the new dataset, and its data set.

    Attributes:
        layout: Name, width and kind of the field.
        data_set: The data set.
        names: Names of the features, if an index file has them.
        is_target: Whether an output predicts the field.
    """

    layout: FieldLayout
    data_set: DataSet
    names: Sequence[str] | None
    is_target: bool

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of examples with each feature, among those read so far."""
        return np.zeros(self.layout.width, dtype=np.int64)

    def facts(self) -> Facts:
        """Return the facts of the data set that a dataset does not store otherwise."""
        own = self.data_set
        return {
            "kind": own.kind,
            "data_type": own.data_type,
            "attributes": [str(each.name) for each in Attribute if each & own.attributes],
            "dimensions": [*own.dimensions],
            "is_target": self.is_target,
        }

    def columns(self, start: int, stop: int, facts: Facts) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns of some examples, and count repeated indices in the facts."""
        name = self.layout.name
        if self.layout.kind == "dense":
            numbers = self.data_set.dense_rows(start, stop, self.is_target)
            yield name, pa.FixedSizeListArray.from_arrays(pa.array(numbers), self.layout.width)
            return
        rows = self.data_set.rows(start, stop, self.layout.width)
        offsets = pa.array(np.r_[0, np.cumsum(rows.counts)].astype(np.int32))
        yield name, pa.ListArray.from_arrays(offsets, pa.array(rows.indices))
        if rows.values is not None:
            yield value_column(name), pa.ListArray.from_arrays(offsets, pa.array(rows.values))
        np.add.at(self.counts, rows.indices, 1)
        merged = facts.get("repeated_indices_merged", 0)
        assert isinstance(merged, int)
        facts["repeated_indices_merged"] = merged + rows.merged

    def vocabulary(self) -> Iterator[pa.RecordBatch]:
        """Return the names and counts of the features; a feature without a name is called by its index.

        Call it after all examples have been read.
        """
        return vocabulary_rows(self.layout.width, self.names, counts=self.counts)


def _check_sets(sets: Sequence[DataSet]) -> None:
    """Raise DataError unless the sets have different names and equally many examples."""
    first, names = sets[0], [each.name for each in sets]
    for each in sets:
        DataError.require(
            names.count(each.name) <= 1,
            f"the names of data sets must differ; {each.name!r} appears twice",
            place=each.place,
        )
        rule = f"must have as many examples as {first.name!r}, {first.num_examples:,}"
        DataError.require(
            each.num_examples == first.num_examples, rule, place=each.place, value=each.num_examples
        )


def _fields(
    sets: Sequence[DataSet], features: Mapping[str, Path | str] | Path | str | None, targets: Sequence[str]
) -> list[_Field]:
    """Return the field of each data set."""
    known = [each.name for each in sets]
    named = features if isinstance(features, Mapping) else dict.fromkeys(known, features)
    for option, names in (("targets", targets), ("features", named)):
        for name in names:
            if name not in known:
                rule = f'must name data sets; got "{name}".{nearest(name, known)}'
                raise OptionError(rule, option=option)
    return [_field(each, named.get(each.name), each.name in targets) for each in sets]


def _check_room(fields: Sequence[_Field], folder: Path) -> None:
    """Raise CapacityError if the disk cannot hold a field's names: a damaged file can claim any width."""
    free = shutil.disk_usage(folder).free
    for each in fields:
        if each.layout.kind == "sparse" and _NAME_BYTES * each.layout.width > free:
            rule = f"has {each.layout.width:,} features, whose names do not fit on the disk"
            raise CapacityError(rule, place=each.data_set.place)


def _field(own: DataSet, index: Path | str | None, is_target: bool) -> _Field:
    if not own.is_sparse:
        rule = f"must have at most {_MAX_DENSE_WIDTH:,} numbers per example; got {own.width:,}"
        DataError.require(own.width <= _MAX_DENSE_WIDTH, rule, place=own.place)
        return _Field(FieldLayout(own.name, own.width, kind="dense"), own, None, is_target)
    names = None if index is None else read_names(Path(index))
    width = own.width if names is None else len(names)
    rule = f"must name at most the {own.width:,} features of {own.place}"
    DataError.require(width <= own.width, rule, place=index, value=width)
    return _Field(FieldLayout(own.name, width, has_values=own.has_values), own, names, is_target)


def _example_names(data_set: DataSet, index: Path) -> list[str]:
    names, rule = read_names(index), f"must name the {data_set.num_examples:,} examples of {data_set.place}"
    DataError.require(len(names) == data_set.num_examples, rule, place=index, value=len(names))
    return names


def _batches(
    fields: Sequence[_Field], sets: Sequence[DataSet], names: Sequence[str] | None, facts: Facts
) -> Iterator[pa.RecordBatch]:
    """Yield the example columns in record batches that fit in memory."""
    start, num_examples = 0, sets[0].num_examples
    while start < num_examples:
        stop = min(start + ROWS_PER_BATCH, num_examples)
        stop = min(each.fitting(start, stop) for each in sets)
        ids = [str(row) for row in range(start, stop)] if names is None else names[start:stop]
        columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.string())}
        weights = _weights(sets, start, stop)
        if weights is not None:
            columns["weight"] = pa.array(weights)
        for each in fields:
            columns |= each.columns(start, stop, facts)
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        start = stop


def _weights(sets: Sequence[DataSet], start: int, stop: int) -> NDArray[np.float32] | None:
    """Return the weight of each example; raises DataError if data sets have different weights."""
    weighted = [(each, each.weights(start, stop)) for each in sets if each.attributes & Attribute.WEIGHTED]
    if not weighted:
        return None
    first, weights = weighted[0]
    for each, others in weighted[1:]:
        if not np.array_equal(weights, others):  # type: ignore[arg-type]
            row = int(np.argmax(weights != others))
            rule = f"must weigh every example as {first.name!r} does, since a dataset has one weight for each"
            raise DataError(f"{rule}; example {start + row:,} differs", place=each.place)
    return weights
