"""Tables in memory: pandas, Polars, Arrow, SciPy's matrices, NumPy's arrays, and Python's own types.

Memory that Arrow can share is not copied.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, broken
from widenet.data.formats.source import Source
from widenet.errors import DataError

_ARRAY_COLUMNS = ("user", "item", "value", "time")
_ROW_LABELS = re.compile(r"__index_level_\d+__")
"""The name that Arrow gives the labels of pandas' rows if these have none, as after a filter."""


def is_in_memory(value: object) -> bool:
    """Whether a value is a source in memory.

    It is one if it has an Arrow stream, or is a sparse matrix, an array, a tuple of arrays, a dictionary of
    columns, or a list of tuples or of rows as dictionaries.
    """
    if isinstance(value, tuple) and value and all(isinstance(each, np.ndarray) for each in value):
        return len(value) > 1
    if isinstance(value, list | tuple):
        return bool(value) and (all(map(_is_row, value)) or all(map(_is_record, value)))
    return (
        isinstance(value, Mapping)
        or hasattr(value, "__arrow_c_stream__")
        or hasattr(value, "tocsr")
        or isinstance(value, np.ndarray)
    )


def opened(value: Any, name: str) -> "TableInMemory":
    """Open a table, a matrix or arrays as a source.

    A matrix has the columns user, item and value: row number, column number and stored value. Arrays, and the
    entries of tuples, are user, item, value and time.

    Raises:
        DataError: The value is none of these.
    """
    if hasattr(value, "tocsr"):
        csr = value.tocsr()
        return of_matrix(name, csr.indptr, csr.indices, csr.data)
    if isinstance(value, list | tuple) and _is_row(value[0]):
        value = _of_tuples(value, name)
    elif isinstance(value, list | tuple) and _is_record(value[0]):
        value = {
            key: [row.get(key) for row in value] for key in dict.fromkeys(key for row in value for key in row)
        }
    if isinstance(value, np.ndarray | tuple):
        value = _of_arrays(list(value.T) if isinstance(value, np.ndarray) else list(value), name)
    if hasattr(value, "to_frame") and getattr(value, "ndim", 1) == 1:  # of pandas or Polars
        raise DataError(f"{name} must have a column for the user and one for the item; got one column.")
    names = [str(each) for each in value.columns] if hasattr(value, "iloc") else []  # of pandas
    if twice := next((each for each in names if names.count(each) > 1), None):
        raise DataError(f'{name}: every column must have its own name; two are "{twice}".')
    try:
        table = _of_columns(value, name) if isinstance(value, Mapping) else pa.table(value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{name}: every column must be of one type that Arrow has; {error}.") from error
    table = table.select([each for each in table.column_names if not _ROW_LABELS.fullmatch(each)])
    columns = [column.name for column in table.schema if not pa.types.is_nested(column.type)]
    types = {column.name: _plain_type(column.type) for column in table.schema}
    floats = frozenset(name for name, kind in types.items() if pa.types.is_floating(kind))
    integers = frozenset(name for name, kind in types.items() if pa.types.is_integer(kind))
    return TableInMemory(name, "a table", columns, floats=floats, integers=integers, table=table)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's cells: that of its categories if it has them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _of_columns(columns: Mapping[Any, Any], source: str) -> pa.Table:
    """Make a table from a dictionary of columns.

    Raises:
        DataError: The columns differ in length.
        TypeError: A text is in place of a column.
    """
    for name, entries in columns.items():
        if isinstance(entries, str | bytes) or not hasattr(entries, "__len__"):
            raise TypeError(f"column {name!r} is {type(entries).__name__}, and must be a list or an array")
    arrays = {str(name): pa.array(entries, from_pandas=True) for name, entries in columns.items()}
    rows = {name: len(entries) for name, entries in arrays.items()}
    if len(set(rows.values())) > 1:
        raise DataError(f"{source}: all columns must have the same number of rows; got {rows}.")
    return pa.table(arrays)


def _is_record(value: object) -> bool:
    """Whether a value is a row as a dictionary."""
    return isinstance(value, Mapping) and bool(value) and all(map(_is_single, value.values()))


def _is_row(value: object) -> bool:
    """Whether a value is a user, an item, and perhaps a value and a time."""
    return isinstance(value, tuple) and 2 <= len(value) <= len(_ARRAY_COLUMNS) and all(map(_is_single, value))


def _is_single(value: object) -> bool:
    """Whether a value is one text or number rather than several."""
    return isinstance(value, str) or not (hasattr(value, "__len__") or isinstance(value, Path))


def _of_tuples(rows: Sequence[tuple[Any, ...]], name: str) -> dict[str, list[Any]]:
    """Make columns from a list of tuples.

    Raises:
        DataError: The tuples differ in length.
    """
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise DataError(f"{name}: tuples must have the same length; got {lengths[0]} and {lengths[1]}.")
    return dict(zip(_ARRAY_COLUMNS, map(list, zip(*rows, strict=True)), strict=False))


def _of_arrays(arrays: list[np.ndarray], name: str) -> dict[str, np.ndarray]:
    if not 2 <= len(arrays) <= len(_ARRAY_COLUMNS) or any(
        array.shape != arrays[0].shape or array.ndim != 1 for array in arrays
    ):
        rule = "2 to 4 arrays must be users, items, and perhaps values and times, all of the same length"
        raise DataError(f"{name}: {rule}.")
    return dict(zip(_ARRAY_COLUMNS, arrays, strict=False))


def of_matrix(name: str, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> "TableInMemory":
    """Make a source from a CSR matrix; a row without entries is a user without items.

    Args:
        name: Name of the source in messages.
        indptr: Start of each row, and the end of the last, integers [E + 1].
        indices: Items, integers [Z].
        data: Values, numbers [Z].
    """
    lengths = np.diff(indptr)
    empty = np.flatnonzero(lengths == 0)
    users = np.repeat(np.arange(len(lengths)), lengths)
    table = pa.table({"user": users, "item": indices, "value": data})
    if len(empty):
        empty_rows = {
            "user": empty,
            "item": pa.nulls(len(empty), table.schema.field("item").type),
            "value": np.ones(len(empty), data.dtype),
        }
        table = pa.concat_tables([table, pa.table(empty_rows, schema=table.schema)])
    return TableInMemory(
        name,
        f"a matrix of {len(lengths):,} rows",
        table.schema.names,
        empty_users=True,
        integers=frozenset({"user", "item"}),
        table=table,
    )


@dataclass
class InArrow(Source):
    """A source that DuckDB reads as Arrow."""

    @abstractmethod
    def rows(self) -> pa.Table | pa.RecordBatchReader:
        """All columns, from the first row on."""

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns."""
        name = f"memory {id(self)}"
        connection.register(name, self.rows())
        return sql.name(name)

    def first_mistake(self, columns: Columns) -> str | None:
        """Describe the first row that breaks a rule, as a sentence; None if there is none."""
        mistakes = []
        with duckdb.connect() as database:
            for role, (column, expression) in columns.expressions().items():
                if role == "item" and self.empty_users:
                    continue
                cell = (
                    f"SELECT row_number() OVER () AS number, CAST({sql.name(column)} AS VARCHAR),"
                    f" {expression} AS read"
                )
                rows = (
                    f"SELECT * FROM ({cell} FROM {self.scan(database)}) WHERE read IS NULL ORDER BY number"
                    " LIMIT 1"
                )
                for number, text, _ in database.execute(rows).fetchall():
                    mistakes.append(
                        (number, f"{self.name}: row {number}: {broken(column, role, text, columns)}")
                    )
        return min(mistakes)[1] if mistakes else None


@dataclass
class TableInMemory(InArrow):
    """An Arrow table."""

    table: pa.Table = field(kw_only=True)

    def rows(self) -> pa.Table:
        """The table."""
        return self.table
