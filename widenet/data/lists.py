"""A dataset from lists in Python: for tests, notebooks, and data that is small."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part, column, value_column
from widenet.data.writer import VOCABULARY_SCHEMA, FieldLayout, write_dataset
from widenet.errors import DataError, OptionError

Rows = Sequence[Sequence[int]]
Numbers = Sequence[Sequence[float]]


def dataset_from_lists(
    path: str | Path,
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
    overwrite: bool = False,
) -> Dataset:
    """Write a dataset directory with one row an example, and open it.

    items: for each example, the indices of its features, in any order, without repeats. The order of examples and
    features stays as given.
    values: beside `items`; the entries of `validation` and `heldout` then get the value one.
    validation, heldout: the other parts of the field, one row an example.
    width: number of features; the least that fits by default, or the length of `item_ids` or `titles`.
    ids, item_ids: names; "0", "1", ... by default. titles: of the features.
    sparse, dense: further fields by name; rows of indices (train part only), rows of numbers of one length.
    Raises DataError when a length or an index does not fit.
    """
    parts: dict[Part, Rows] = {"train": items}
    if validation is not None:
        parts["validation"] = validation
    if heldout is not None:
        parts["heldout"] = heldout
    columns: dict[str, pa.Array] = {"id": pa.array(ids if ids is not None else [str(row) for row in range(len(items))], pa.string())}
    if weights is not None:
        columns["weight"] = pa.array(weights, pa.float32())
    layout = FieldLayout(field, _width(parts.values(), width, item_ids, titles), parts=tuple(parts), has_values=values is not None)
    layouts = [layout]
    vocabularies = {field: [_vocabulary(items, layout.width, item_ids, titles)]}
    for part, rows in parts.items():
        beside = values if part == "train" else None if values is None else [[1.0] * len(row) for row in rows]
        columns |= _sorted_columns(field, part, rows, beside)
    for name, rows in (sparse or {}).items():
        layouts.append(FieldLayout(name, _width([rows], None, None, None)))
        vocabularies[name] = [_vocabulary(rows, layouts[-1].width, None, None)]
        columns |= _sorted_columns(name, "train", rows, None)
    for name, numbers in (dense or {}).items():
        layouts.append(FieldLayout(name, len(numbers[0]) if numbers else 1, kind="dense"))
        columns[name] = pa.array(numbers, pa.list_(pa.float32(), layouts[-1].width))
    for name, values_of_column in columns.items():
        if len(values_of_column) != len(items):
            raise DataError(f"column {name!r} must have one row for each of {len(items)} examples; got {len(values_of_column)}.")
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    write_dataset(
        Path(path), layouts=layouts, batches=[batch], vocabularies=vocabularies, has_weights=weights is not None, overwrite=overwrite
    )
    return Dataset.open(path)


def _width(parts: Iterable[Rows], width: int | None, item_ids: Sequence[str] | None, titles: Sequence[str | None] | None) -> int:
    if width is not None:
        return width
    for names in (item_ids, titles):
        if names is not None:
            return len(names)
    return 1 + max((index for rows in parts for row in rows for index in row), default=0)


def _sorted_columns(field: str, part: Part, rows: Rows, values: Numbers | None) -> dict[str, pa.Array]:
    columns = {column(field, part): pa.array([sorted(row) for row in rows], pa.list_(pa.uint32()))}
    if values is not None:
        if [len(row) for row in values] != [len(row) for row in rows]:
            raise OptionError(f"values must have one number beside each index of {column(field, part)!r}.")
        paired = [[number for _, number in sorted(zip(row, beside, strict=True))] for row, beside in zip(rows, values, strict=True)]
        columns[value_column(field, part)] = pa.array(paired, pa.list_(pa.float32()))
    return columns


def _vocabulary(rows: Rows, width: int, ids: Sequence[str] | None, titles: Sequence[str | None] | None) -> pa.RecordBatch:
    flat = np.array([index for row in rows for index in row], dtype=np.int64)
    counts = np.bincount(flat[flat < width], minlength=width)
    names = list(ids) if ids is not None else [str(index) for index in range(width)]
    shown = list(titles) if titles is not None else [None] * width
    if not len(names) == len(shown) == width:
        raise DataError(f"item_ids and titles must name {width} features; got {len(names)} and {len(shown)}.")
    columns = [pa.array(names, pa.string()), pa.array(shown, pa.string()), pa.array(counts, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=VOCABULARY_SCHEMA)
