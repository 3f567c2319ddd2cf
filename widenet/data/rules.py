"""The rules of the example columns: how fields may be named, which columns they have, what rows may hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.manifest import MAX_WIDTH, Field, Part, column, time_column, value_column
from widenet.errors import DataError

LONGEST_NAME_BYTES = 100

_TAKEN_NAMES = ("id", "weight")
_TAKEN_ENDINGS = (".value", ".validation", ".heldout")
_TAKEN_BEGINNINGS = (".", "examples-")


@dataclass(frozen=True)
class FieldLayout:
    """The properties of a field that must be known before its first batch.

    Raises:
        DataError: The name or the width is wrong, or the field is a sequence with values.
    """

    name: str
    width: int
    kind: Literal["sparse", "dense", "sequence"] = "sparse"
    parts: tuple[Part, ...] = ("train",)
    has_values: bool = False
    has_times: bool = False
    described: Mapping[str, int] = dataclass_field(default_factory=dict)

    def __post_init__(self) -> None:
        check_field_name(self.name)
        DataError.require(
            1 <= self.width <= MAX_WIDTH,
            f"field {self.name!r}: width must be 1 to {MAX_WIDTH:,}; got {self.width:,}.",
        )
        DataError.require(
            self.kind != "sequence" or not self.has_values,
            f"field {self.name!r}: a sequence must have no values, only an order.",
        )

    @classmethod
    def of(cls, field: Field) -> "FieldLayout":
        """The layout of a field in a manifest."""
        return cls(
            field.name,
            field.width,
            field.kind,
            field.parts,
            field.has_values,
            field.has_times,
            field.described,
        )


def check_field_name(name: str) -> None:
    """Raise DataError unless a field may have this name.

    The name becomes a column, a file name and a key of documents.
    """
    is_text = name.isprintable() and not {"/", "\\"} & set(name)
    is_taken = name in _TAKEN_NAMES or name.endswith(_TAKEN_ENDINGS) or name.startswith(_TAKEN_BEGINNINGS)
    fits = 1 <= len(name.encode()) <= LONGEST_NAME_BYTES
    rule = (
        f"a field's name must be printable text without / and \\ of 1 to {LONGEST_NAME_BYTES} bytes, and"
        f" not be {' or '.join(_TAKEN_NAMES)}, end in {', '.join(_TAKEN_ENDINGS)},"
        f" or begin with {' or '.join(_TAKEN_BEGINNINGS)}"
    )
    DataError.require(is_text and fits and not is_taken, rule, value=name)


def check_names(layouts: Sequence[FieldLayout]) -> None:
    """Raise DataError if two fields have the same name, or one has the name of a time column."""
    names = [layout.name for layout in layouts]
    names += [time_column(each.name, part) for each in layouts if each.has_times for part in each.parts]
    for name in names:
        rule = "fields must have different names, which are no columns of times"
        DataError.require(names.count(name) == 1, rule, value=name)


def examples_schema(layouts: Sequence[FieldLayout], has_weights: bool) -> pa.Schema:
    """The columns of the example files, in order."""
    columns = [("id", pa.string())] + ([("weight", pa.float32())] if has_weights else [])
    for layout in layouts:
        if layout.kind == "dense":
            columns.append((layout.name, pa.list_(pa.float32(), layout.width)))
            continue
        for part in layout.parts:
            columns.append((column(layout.name, part), pa.list_(pa.uint32())))
            if layout.has_values:
                columns.append((value_column(layout.name, part), pa.list_(pa.float32())))
            if layout.has_times:
                columns.append((time_column(layout.name, part), pa.list_(pa.float64())))
    return pa.schema(columns)


def checked_parts(
    batch: pa.RecordBatch, layouts: Sequence[FieldLayout], place: str
) -> Iterator[tuple[FieldLayout, Part, int, np.ndarray | None]]:
    """Check a record batch with the columns of `examples_schema`.

    Args:
        batch: The batch.
        layouts: The fields.
        place: Start of the messages.

    Yields:
        For each part of each field: layout, part, number of entries, and values (float32 [Z], or None).

    Raises:
        DataError: A row breaks a rule; the message names place, column and rule.
    """
    for name in batch.schema.names:
        DataError.require(not batch.column(name).null_count, f"{place}: column {name!r}: must hold no nulls.")
    if "weight" in batch.schema.names:
        weights = batch.column("weight").to_numpy()
        _check(batch, "weight", np.isfinite(weights) & (weights >= 0), "must be finite and at least 0", place)
    for layout in layouts:
        for part in ("train",) if layout.kind == "dense" else layout.parts:
            name = column(layout.name, part)
            if layout.kind == "dense":
                values = _entries(batch, name, place)
                _check(batch, name, np.isfinite(values), "must hold finite numbers", place)
                yield layout, part, len(values), values
            else:
                yield layout, part, *_check_sparse(batch, layout, part, place)


def check_indices(indices: np.ndarray, width: int, place: str) -> None:
    """Raise DataError if an index (unsigned, [Z]) is not below the width."""
    highest = int(indices.max()) if len(indices) else -1
    DataError.require(highest < width, f"{place}: indices must lie in [0, {width:,}); got {highest:,}.")


def _check_sparse(
    batch: pa.RecordBatch, layout: FieldLayout, part: Part, place: str
) -> tuple[int, np.ndarray | None]:
    name = column(layout.name, part)
    indices, offsets = _entries(batch, name, place), batch.column(name).offsets.to_numpy()
    rising = np.ones(len(indices), dtype=bool)
    rising[1:] = indices[1:] > indices[:-1]
    starts = offsets[:-1] - offsets[0]
    rising[starts[starts < len(indices)]] = True
    if layout.kind == "sparse":
        _check(batch, name, rising, "indices must ascend without repeats within a row", place)
    check_indices(indices, layout.width, f"{place}: column {name!r}")
    if layout.has_times:
        _check_beside(batch, name, time_column(layout.name, part), place)
    if not layout.has_values:
        return len(indices), None
    return len(indices), _check_beside(batch, name, value_column(layout.name, part), place)


def _check_beside(batch: pa.RecordBatch, name: str, beside: str, place: str) -> np.ndarray:
    """Check and return the finite numbers beside the indices of a column; raises DataError."""
    lengths, others = (np.diff(batch.column(each).offsets.to_numpy()) for each in (beside, name))
    rule = f"must have rows of the lengths of {name!r}"
    DataError.require(np.array_equal(lengths, others), rule, place=place, column=beside)
    values = _entries(batch, beside, place)
    _check(batch, beside, np.isfinite(values), "must hold finite numbers", place)
    return values


def _entries(batch: pa.RecordBatch, name: str, place: str) -> np.ndarray:
    entries = batch.column(name).flatten()
    DataError.require(
        not entries.null_count,
        f"{place}: column {name!r}: rows must hold no nulls; got {entries.null_count:,}.",
    )
    numbers: np.ndarray = entries.to_numpy()
    return numbers


def _check(batch: pa.RecordBatch, name: str, right: np.ndarray, rule: str, place: str) -> None:
    """Raise DataError for the first entry of a column that is not right, bool [entries]."""
    if right.all():
        return
    row = int(np.argmin(right))
    if pa.types.is_nested(batch.column(name).type):
        ends = np.cumsum(pc.list_value_length(batch.column(name)).to_numpy())
        row = int(np.searchsorted(ends, row, side="right"))
    example = batch.column("id")[row].as_py()
    raise DataError(f"{rule}; example {example!r} has others", place=place, column=name)
