"""A DSSTNE data set in a NetCDF file: its attributes, and its rows in blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.data.manifest import MAX_WIDTH
from widenet.dsstne.netcdf import Column, NetcdfFile, as_characters, as_floats
from widenet.errors import DataError

NUMBERS_PER_BLOCK = 2**24
"""Maximum of numbers of one data set in memory, unless a single row has more."""
_NARROW_GAP = 512
"""Ranges of a variable with at most this many values between them are read together."""


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
NUMPY_TYPES = {
    "UInt": "u4",
    "Int": "i4",
    "LLInt": "i8",
    "ULLInt": "u8",
    "Float": "f4",
    "Double": "f8",
    "RGB8": "u1",
    "RGB16": "u2",
    "UChar": "u1",
    "Char": "i1",
}
"""NumPy types by the names of DSSTNE's types, in the order of their codes."""
TYPES = tuple(NUMPY_TYPES)
_SCALES = {"RGB8": (256, 0.5), "RGB16": (65_536, 0.5), "UChar": (256, 0.5), "Char": (128, 0.0)}
"""Divisor of dense 8-bit and 16-bit numbers, and the shift that inputs subtract afterwards."""
_SIDES = ("width", "height", "length")
_UINT32_ENTRIES = 2**32


def stored_as(data_type: str) -> str:
    """Return the type under which files store a data type; DSSTNE reads Char as characters."""
    return "S1" if data_type == "Char" else NUMPY_TYPES[data_type]


def scale_of(data_type: str, is_target: bool) -> tuple[int, float]:
    """Return divisor and shift: a stored number v of a dense set means v / divisor - shift."""
    divisor, shift = _SCALES.get(data_type, (1, 0.0))
    return divisor, 0.0 if is_target else shift


def create_set(
    file: Any,
    number: int,
    *,
    name: str,
    kind: str,
    data_type: str,
    attributes: Attribute,
    dimensions: Sequence[int],
    num_examples: int,
    num_entries: int,
    width: int,
) -> None:
    """Write the attributes of a data set, and create its dimensions and empty variables.

    Args:
        file: The `netCDF4.Dataset`.
        number: Number of the set.
        name: Its name.
        kind: One of KINDS.
        data_type: One of TYPES.
        attributes: Its attributes.
        dimensions: Its sides.
        num_examples: Number of its examples.
        num_entries: Entries of all examples, if the set is sparse.
        width: Numbers of an example, if the set is dense.
    """
    file.setncattr(f"name{number}", as_characters(name))
    codes = {"attributes": int(attributes), "kind": KINDS.index(kind), "dataType": TYPES.index(data_type)}
    sides = dict(zip(_SIDES, dimensions, strict=False))
    for key, value in {**codes, "dimensions": len(sides), **sides}.items():
        file.setncattr(f"{key}{number}", np.uint32(value))
    file.createDimension(f"examplesDim{number}", num_examples)
    file.createDimension(f"uniqueExamplesDim{number}", num_examples)
    if attributes & Attribute.WEIGHTED:
        file.createVariable(f"dataWeight{number}", "f4", (f"examplesDim{number}",))
    if not attributes & Attribute.SPARSE:
        size = 1 if attributes & Attribute.BOOLEAN else width
        file.createDimension(f"dataDim{number}", num_examples * size)
        file.createVariable(f"data{number}", stored_as(data_type), (f"dataDim{number}",))
        return
    file.createDimension(f"sparseDataDim{number}", max(1, num_entries))
    place = "u4" if num_entries < _UINT32_ENTRIES else "u8"
    for key in ("sparseStart", "sparseEnd"):
        file.createVariable(f"{key}{number}", place, (f"uniqueExamplesDim{number}",))
    columns = {"sparseIndex": "u4"}
    if not attributes & Attribute.BOOLEAN:
        columns["sparseData"] = stored_as(data_type)
    for key, stored in columns.items():
        variable = file.createVariable(f"{key}{number}", stored, (f"sparseDataDim{number}",))
        if not num_entries:
            variable[:] = np.zeros(1, variable.dtype)


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
        place = f"{file.path}: data set {name!r}"

        def code(key: str, low: int, high: int, meaning: str, default: int | None = None) -> int:
            value = file.whole(f"{key}{number}", default=default)
            DataError.require(
                low <= value <= high, f"{key}{number} must be {meaning}", place=place, value=value
            )
            return value

        types = ", ".join(f"{code} {each}" for code, each in enumerate(TYPES))
        num_sides = code("dimensions", 1, len(_SIDES), "1 to 3")
        data_type = code("dataType", 0, len(TYPES) - 1, f"one of {types}")
        kind = code("kind", 0, len(KINDS) - 1, "0 to 2", default=0)
        attributes = code("attributes", 0, 2 * max(Attribute) - 1, "below 256")
        sides = tuple(file.whole(f"{side}{number}", minimum=1) for side in _SIDES[:num_sides])
        rule = f"must have at most {MAX_WIDTH:,} features; its sides are {list(sides)}"
        DataError.require(prod(sides) <= MAX_WIDTH, rule, place=place)
        num_examples = file.length(f"examplesDim{number}")
        if not num_examples:
            rule = f"examplesDim{number} must be at least 1"
            raise DataError(rule, place=place, value=num_examples)
        return cls(
            file, number, name, KINDS[kind], TYPES[data_type], Attribute(attributes), sides, num_examples
        )

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
        divisor, shift = scale_of(self.data_type, is_target)
        numbers = as_floats(stored) / np.float32(divisor) - np.float32(shift)
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
    counts = ends - starts
    filled = np.flatnonzero(counts)
    if not len(filled):
        return column.numbers(0, 0)
    order = filled[np.argsort(starts[filled], kind="stable")]
    reach = np.maximum.accumulate(ends[order])
    begins = np.flatnonzero(np.r_[True, starts[order][1:] > reach[:-1] + _NARROW_GAP])
    stops = np.r_[begins[1:], len(order)]
    low, high = starts[order][begins], reach[stops - 1]
    read = np.concatenate(
        [column.numbers(int(first), int(last)) for first, last in zip(low, high, strict=True)]
    )
    shift = np.zeros(len(counts), dtype=np.int64)
    shift[order] = np.repeat(np.r_[0, np.cumsum(high - low)[:-1]] - low, stops - begins)
    positions = np.repeat(starts + shift - np.r_[0, np.cumsum(counts)[:-1]], counts)
    positions += np.arange(len(positions))
    numbers: NDArray[Any] = read[positions]
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
