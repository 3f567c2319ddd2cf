"""Makes a dataset from lists in Python: for tests, notebooks, and small data."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from widenet.arguments import Location, typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part, column, value_column
from widenet.data.rules import FieldLayout, check_names
from widenet.data.writer import vocabulary_rows, write_dataset
from widenet.errors import DataError, OptionError, reason_of

Rows = Sequence[Sequence[int]]
Numbers = Sequence[Sequence[float]]


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
    given: dict[Part, Rows | None] = {"train": items, "validation": validation, "heldout": heldout}
    parts = {part: _lists(column(field, part), rows) for part, rows in given.items() if rows is not None}
    further = {name: _lists(name, rows) for name, rows in (sparse or {}).items()}
    named = next((len(names) for names in (item_ids, titles) if names is not None), None)
    least = max(map(_width, parts.values())) if named is None else named
    kind: Literal["sparse", "sequence"] = "sequence" if sequence else "sparse"
    layouts = [FieldLayout(field, least if width is None else width, kind, tuple(parts), values is not None)]
    columns = {"id": _names("ids", list(map(str, range(len(items)))) if ids is None else ids)}
    if weights is not None:
        columns["weight"] = _array("weight", weights, pa.float32())
    for part, lists in parts.items():
        ones = pa.array(np.ones(len(lists.flatten()), np.float32))
        beside = None if values is None else pa.ListArray.from_arrays(lists.offsets, ones)
        if part == "train" and values is not None:
            beside = _array(value_column(field), list(values), pa.list_(pa.float32()))
        columns |= _sorted(column(field, part), lists, beside, sequence)
    for name, lists in further.items():
        layouts.append(FieldLayout(name, _width(lists)))
        columns |= _sorted(name, lists, None, False)
    for name, rows in (dense or {}).items():
        numbers = _array(name, list(rows), pa.list_(pa.float32()))
        layouts.append(FieldLayout(name, len(numbers[0]) if len(numbers) else 1, "dense"))
        columns[name] = _array(name, numbers, pa.list_(pa.float32(), layouts[-1].width))
    check_names(layouts)
    for name, array in columns.items():
        DataError.require(
            len(array) == len(items),
            f"must have a row for each of {len(items)} examples",
            column=name,
            value=len(array),
        )
    vocabularies = {field: _vocabulary(parts["train"], layouts[0].width, item_ids, titles)}
    vocabularies |= {name: _vocabulary(lists, _width(lists)) for name, lists in further.items()}
    write_dataset(
        Path(path),
        layouts=layouts,
        batches=[pa.RecordBatch.from_arrays(list(columns.values()), list(columns))],
        vocabularies=vocabularies,
        has_weights=weights is not None,
        overwrite=overwrite,
    )
    return Dataset.open(path)


def _array(name: str, rows: Any, kind: pa.DataType | None) -> pa.Array:
    """Make a column; raises DataError if a row is of another kind."""
    try:
        return rows.cast(kind) if isinstance(rows, pa.Array) else pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"must be of one kind for each example: {reason_of(error)}", column=name) from error


def _lists(name: str, rows: Rows) -> pa.ListArray:
    """Make a column of indices; raises DataError if a row is no list of whole numbers."""
    inferred = _array(name, list(rows), None)
    entry = inferred.type.value_type if pa.types.is_list(inferred.type) else inferred.type
    DataError.require(
        pa.types.is_null(entry) or (pa.types.is_integer(entry) and pa.types.is_list(inferred.type)),
        "must be a list of whole numbers for each example",
        column=name,
    )
    return _array(name, inferred, pa.list_(pa.uint32()))


def _names(option: str, names: Sequence[str]) -> pa.Array:
    """Make a column of names; raises DataError for one that is not a text, or that occurs twice."""
    DataError.require(
        all(isinstance(name, str) for name in names) and len(set(names)) == len(names),
        "must be different texts",
        option=option,
    )
    return pa.array(list(names), pa.string())


def _width(lists: pa.ListArray) -> int:
    """The smallest number of features that fits."""
    return int(lists.flatten().to_numpy().max(initial=0)) + 1


def _sorted(
    name: str, lists: pa.ListArray, values: pa.ListArray | None, sequence: bool
) -> dict[str, pa.ListArray]:
    """The column of indices, and that of values; within a row they ascend unless it is a sequence."""
    columns = {name: lists} | ({} if values is None else {f"{name}.value": values})
    OptionError.require(
        all(array.offsets.equals(lists.offsets) for array in columns.values()),
        "must have one number beside each index",
        option="values",
    )
    owners = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))
    order = np.arange(len(owners)) if sequence else np.lexsort((lists.flatten().to_numpy(), owners))
    return {
        each: pa.ListArray.from_arrays(lists.offsets, array.flatten().take(order))
        for each, array in columns.items()
    }


def _vocabulary(
    lists: pa.ListArray,
    width: int,
    ids: Sequence[str] | None = None,
    titles: Sequence[str | None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a field's vocabulary."""
    for option, names in (("item_ids", ids), ("titles", titles)):
        if names is not None:
            DataError.require(
                len(names) == width, f"must name {width} features", option=option, value=len(names)
            )
    flat = lists.flatten().to_numpy()
    if ids is not None:
        _names("item_ids", ids)
    return vocabulary_rows(width, ids, titles, np.bincount(flat[flat < width], minlength=width))
