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
    rule = None
    if not name or not name.isprintable() or "/" in name or "\\" in name:
        rule = "be printable text without / and \\"
    elif len(name.encode()) > LONGEST_NAME_BYTES:
        rule = f"have at most {LONGEST_NAME_BYTES} bytes in UTF-8"
    elif name in _TAKEN_NAMES or name.endswith(_TAKEN_ENDINGS) or name.startswith(_TAKEN_BEGINNINGS):
        ends, begins = ", ".join(_TAKEN_ENDINGS), " or ".join(_TAKEN_BEGINNINGS)
        rule = f"not be {' or '.join(_TAKEN_NAMES)}, not end in {ends}, and not begin with {begins}"
    if rule is not None:
        raise DataError(f"a field's name must {rule}; got {name!r}.")


def check_names(layouts: Sequence[FieldLayout]) -> None:
    """Raise DataError if two fields have the same name, or one has the name of a time column."""
    names = [layout.name for layout in layouts]
    for name in names:
        DataError.require(names.count(name) <= 1, f"the names of fields must differ; {name!r} occurs twice.")
    for layout in layouts:
        for taken in (time_column(layout.name, part) for part in layout.parts if layout.has_times):
            if taken in names:
                rule = f"no field may be called {taken!r}: it is the column of the times of {layout.name!r}"
                raise DataError(f"{rule}.")


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
        _check_weights(batch, place)
    for layout in layouts:
        for part in ("train",) if layout.kind == "dense" else layout.parts:
            name = column(layout.name, part)
            if layout.kind == "dense":
                values = _entries(batch, name, place)
                _check_finite(batch, name, values, place)
                yield layout, part, len(values), values
            else:
                yield layout, part, *_check_sparse(batch, layout, part, place)


def check_indices(indices: np.ndarray, width: int, place: str) -> None:
    """Raise DataError if an index (unsigned, [Z]) is not below the width."""
    highest = int(indices.max()) if len(indices) else -1
    DataError.require(highest < width, f"{place}: indices must lie in [0, {width:,}); got {highest:,}.")


def _check_weights(batch: pa.RecordBatch, place: str) -> None:
    weights = batch.column("weight").to_numpy()
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        rule = "an example's weight must be a finite number of at least 0"
        raise DataError(f"{place}: {rule}; {_example(batch, row)} has {weights[row]:g}.")


def _check_sparse(
    batch: pa.RecordBatch, layout: FieldLayout, part: Part, place: str
) -> tuple[int, np.ndarray | None]:
    name = column(layout.name, part)
    where = f"{place}: column {name!r}"
    indices, offsets = _entries(batch, name, place), batch.column(name).offsets.to_numpy()
    rising = np.ones(len(indices), dtype=bool)
    rising[1:] = indices[1:] > indices[:-1]
    starts = offsets[:-1] - offsets[0]
    rising[starts[starts < len(indices)]] = True
    if layout.kind == "sparse" and not rising.all():
        rule = "indices must ascend without repeats within a row"
        raise DataError(f"{where}: {rule}; {_owner(batch, name, rising)} has others.")
    check_indices(indices, layout.width, where)
    if layout.has_times:
        _check_beside(batch, name, time_column(layout.name, part), place)
    if not layout.has_values:
        return len(indices), None
    return len(indices), _check_beside(batch, name, value_column(layout.name, part), place)


def _check_beside(batch: pa.RecordBatch, name: str, beside: str, place: str) -> np.ndarray:
    """Check and return the finite numbers beside the indices of a column; raises DataError."""
    if not np.array_equal(*(np.diff(batch.column(each).offsets.to_numpy()) for each in (beside, name))):
        rule = f"must have one value beside each index; {beside!r} has rows of other lengths"
        raise DataError(f"{place}: column {name!r}: {rule}.")
    values = _entries(batch, beside, place)
    _check_finite(batch, beside, values, place)
    return values


def _entries(batch: pa.RecordBatch, name: str, place: str) -> np.ndarray:
    entries = batch.column(name).flatten()
    DataError.require(
        not entries.null_count,
        f"{place}: column {name!r}: rows must hold no nulls; got {entries.null_count:,}.",
    )
    numbers: np.ndarray = entries.to_numpy()
    return numbers


def _check_finite(batch: pa.RecordBatch, name: str, values: np.ndarray, place: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        owner, value = _owner(batch, name, finite), values[int(np.argmin(finite))]
        raise DataError(f"{place}: column {name!r}: values must be finite numbers; {owner} has {value:g}.")


def _owner(batch: pa.RecordBatch, name: str, right: np.ndarray) -> str:
    """Name the example of the first entry that is not right, in words."""
    ends = np.cumsum(pc.list_value_length(batch.column(name)).to_numpy())
    return _example(batch, int(np.searchsorted(ends, int(np.argmin(right)), side="right")))


def _example(batch: pa.RecordBatch, row: int) -> str:
    return f"example {batch.column('id')[row].as_py()!r}"
