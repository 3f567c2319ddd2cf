"""Makes a dataset from lists in Python: for tests, notebooks, and small data."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from widenet.arguments import Location, typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part, column, value_column
from widenet.data.rules import FieldLayout, check_names
from widenet.data.writer import VOCABULARY_SCHEMA, write_dataset
from widenet.errors import DataError, OptionError, shown
from widenet.sparse import SparseBatch

Rows = Sequence[Sequence[int]]
Numbers = Sequence[Sequence[float]]
_Number = TypeVar("_Number", int, float)


@typed
def dataset_from_lists(
    path: Location,
    items: Rows,
    *,
    values: Numbers | None = None,
    validation: Rows | None = None,
    heldout: Rows | None = None,
    width: int | None = None,
    ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
    titles: Sequence[str | None] | None = None,
    weights: Sequence[float] | None = None,
    sparse: Mapping[str, Rows] | None = None,
    dense: Mapping[str, Numbers] | None = None,
    field: str = "items",
    sequence: bool = False,
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset directory from one list of indices for each example, and open it.

    Examples and features keep their order.

    Args:
        path: The dataset directory to make.
        items: The feature indices of each example, in any order and without repeats.
        values: Numbers beside `items`. Entries of `validation` and `heldout` then have the value 1.
        validation: The validation part of the field, as `items`.
        heldout: The heldout part of the field, as `items`.
        width: Number of features. Default: the length of `item_ids` or `titles`, else the smallest that fits.
        ids: Names of the examples. Default: "0", "1" and so on.
        item_ids: Names of the features. Default: "0", "1" and so on.
        titles: Titles of the features; None for a feature without one.
        weights: Weight of each example in the loss, finite and at least 0.
        sparse: Further sparse fields by name, as `items`; they have a train part alone.
        dense: Dense fields by name: a list of numbers for each example, all of the same length.
        field: Name of the field.
        sequence: Whether the rows of `field` are sequences, which keep their order and may repeat features.
            Sequences have no `values`.
        overwrite: Whether an existing dataset may be replaced.

    Returns:
        The dataset, opened.

    Raises:
        DataError: A row, an index, a weight or a name breaks a rule.
        OptionError: `values` do not fit `items`.
    """
    rows_of: dict[Part, Rows | None] = {"train": items, "validation": validation, "heldout": heldout}
    named = {part: rows for part, rows in rows_of.items() if rows is not None}
    parts = {part: _numbers(column(field, part), rows, operator.index) for part, rows in named.items()}
    further = {name: _numbers(name, rows, operator.index) for name, rows in (sparse or {}).items()}
    columns = _example_columns(len(items), ids, weights)
    width = _width(parts.values(), width, item_ids, titles)
    layout = FieldLayout(field, width, "sequence" if sequence else "sparse", tuple(parts), values is not None)
    others = [FieldLayout(name, _width([rows], None, None, None)) for name, rows in further.items()]
    layouts = [layout, *others]
    columns |= _parts(layout, parts, values)
    for other in others:
        columns |= _columns(other, "train", further[other.name], None)
    vocabularies = {field: [_vocabulary(parts["train"], layout.width, item_ids, titles)]}
    vocabularies |= {each.name: [_vocabulary(further[each.name], each.width, None, None)] for each in others}
    for name, numbers in (dense or {}).items():
        layouts.append(FieldLayout(name, _dense_width(name, numbers), kind="dense"))
        columns[name] = pa.array(_numbers(name, numbers, _real), pa.list_(pa.float32(), layouts[-1].width))
    check_names(layouts)
    _check_lengths(columns, len(items))
    write_dataset(
        Path(path),
        layouts=layouts,
        batches=[pa.RecordBatch.from_arrays(list(columns.values()), list(columns))],
        vocabularies=vocabularies,
        has_weights=weights is not None,
        overwrite=overwrite,
    )
    return Dataset.open(path)


def _example_columns(
    num_examples: int, ids: Sequence[str] | None, weights: Sequence[float] | None
) -> dict[str, pa.Array]:
    """The names of the examples and, if there are any, their weights."""
    columns = {"id": _names("ids", [str(row) for row in range(num_examples)] if ids is None else ids)}
    if weights is not None:
        columns["weight"] = pa.array(_numbers("weight", [weights], _real)[0], pa.float32())
    return columns


def _check_lengths(columns: Mapping[str, pa.Array], num_examples: int) -> None:
    """Raise DataError for a column that does not have one row for each example."""
    for name, values in columns.items():
        if len(values) != num_examples:
            raise DataError(
                f"column {name!r} must have one row for each of {num_examples} examples; got {len(values)}."
            )


def _parts(layout: FieldLayout, parts: Mapping[Part, Rows], values: Numbers | None) -> dict[str, pa.Array]:
    """The columns of a field's parts; if there are values, those outside the train part are 1."""
    columns: dict[str, pa.Array] = {}
    for part, rows in parts.items():
        ones = None if values is None else [[1.0] * len(row) for row in rows]
        columns |= _columns(layout, part, rows, values if part == "train" else ones)
    return columns


def _width(
    parts: Iterable[Rows],
    width: int | None,
    item_ids: Sequence[str] | None,
    titles: Sequence[str | None] | None,
) -> int:
    if width is not None:
        return width
    for names in (item_ids, titles):
        if names is not None:
            return len(names)
    return 1 + max((index for rows in parts for row in rows for index in row if index > 0), default=0)


def _dense_width(name: str, rows: Numbers) -> int:
    """The common length of all rows; raises DataError for a row of another length."""
    lengths = [len(row) if isinstance(row, Sequence | np.ndarray) else 0 for row in rows]
    for row, length in enumerate(lengths):
        if length != lengths[0] or not length:
            rule = "must be a list of numbers, as many as in row 0 and at least one"
            raise DataError(f"column {name!r}: row {row} {rule}; got {shown(rows[row])}.")
    return lengths[0] if lengths else 1


def _numbers(
    name: str, rows: Sequence[Iterable[object]], read: Callable[[Any], _Number]
) -> list[list[_Number]]:
    """Convert each number of the rows with `read`; raises DataError for a row that cannot be converted."""
    numbers: list[list[_Number]] = []
    for number, row in enumerate(rows):
        try:
            if isinstance(row, str | bytes):
                raise TypeError
            numbers.append([read(entry) for entry in row])
        except (TypeError, ValueError) as error:
            what = "whole numbers" if read is operator.index else "numbers"
            rule = f"row {number} must be a list of {what}; got {shown(row)}"
            raise DataError(f"column {name!r}: {rule}.") from error
    return numbers


def _real(entry: Any) -> float:
    if isinstance(entry, str | bytes):
        raise TypeError
    return float(entry)


def _names(what: str, names: Sequence[str]) -> pa.Array:
    """Make a column of names; raises DataError for one that is not a text, or that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or name in seen:
            raise DataError(f"{what} must be different texts; got {shown(name)}.")
        seen.add(name)
    return pa.array(list(names), pa.string())


def _columns(layout: FieldLayout, part: Part, rows: Rows, values: Numbers | None) -> dict[str, pa.Array]:
    name, beside = column(layout.name, part), value_column(layout.name, part)
    numbers = None if values is None else _numbers(beside, values, _real)
    if numbers is not None and [len(row) for row in numbers] != [len(row) for row in rows]:
        raise OptionError(f"values must have one number beside each index of {name!r}.")
    SparseBatch.from_lists(rows, numbers).checked(layout.width, f"column {name!r}")
    ordered = rows if layout.kind == "sequence" else [sorted(row) for row in rows]
    columns = {name: pa.array(ordered, pa.list_(pa.uint32()))}
    if numbers is not None:
        paired = [
            [number for _, number in sorted(zip(row, others, strict=True))]
            for row, others in zip(rows, numbers, strict=True)
        ]
        columns[beside] = pa.array(paired, pa.list_(pa.float32()))
    return columns


def _vocabulary(
    rows: Rows, width: int, ids: Sequence[str] | None, titles: Sequence[str | None] | None
) -> pa.RecordBatch:
    flat = np.array([index for row in rows for index in row], dtype=np.int64)
    counts = np.bincount(flat[flat < width], minlength=width)
    names = list(ids) if ids is not None else [str(index) for index in range(width)]
    titled = list(titles) if titles is not None else [None] * width
    if not len(names) == len(titled) == width:
        raise DataError(
            f"item_ids and titles must name {width} features; got {len(names)} and {len(titled)}."
        )
    columns = [_names("item_ids", names), pa.array(titled, pa.string()), pa.array(counts, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=VOCABULARY_SCHEMA)
