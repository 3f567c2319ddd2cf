"""Tables in memory, without copying what Arrow can share: pandas, Polars, Arrow, SciPy's sparse matrices, NumPy's arrays."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, broken
from widenet.data.formats.source import Source
from widenet.errors import DataError

_ARRAY_COLUMNS = ("user", "item", "value", "time")


def is_table(given: object) -> bool:
    """Whether something is a source in memory: it has an Arrow stream or is a sparse matrix, or it is an array or a tuple of arrays."""
    if isinstance(given, tuple):
        return len(given) > 1 and all(isinstance(each, np.ndarray) for each in given)
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "tocsr") or isinstance(given, np.ndarray)


def opened(given: Any, name: str) -> "TableInMemory":
    """The source in a table, a matrix or arrays; raises DataError for what is none.

    A matrix has the columns user, item and value: row and column number, and what is stored there. Arrays are user, item, value and time.
    """
    if hasattr(given, "tocsr"):
        csr = given.tocsr()
        return of_matrix(name, csr.indptr, csr.indices, csr.data)
    if isinstance(given, np.ndarray | tuple):
        given = _of_arrays(list(given.T) if isinstance(given, np.ndarray) else list(given), name)
    try:
        table = pa.table(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name}: every column must be of one type that Arrow has; {error}. Convert the column.") from error
    return TableInMemory(name, "a table", list(table.schema.names), table=table)


def _of_arrays(arrays: list[np.ndarray], name: str) -> dict[str, np.ndarray]:
    if not 2 <= len(arrays) <= len(_ARRAY_COLUMNS) or any(array.shape != arrays[0].shape or array.ndim != 1 for array in arrays):
        raise DataError(f"{name}: arrays must be users, items, and perhaps values and times, of one length. Give 2 to 4 of them.")
    return dict(zip(_ARRAY_COLUMNS, arrays, strict=False))


def of_matrix(name: str, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> "TableInMemory":
    """The source in a CSR matrix, indptr [E + 1], indices [Z], data [Z]; a row without entries is a user without items."""
    lengths = np.diff(indptr)
    empty = np.flatnonzero(lengths == 0)
    users = np.repeat(np.arange(len(lengths)), lengths)
    table = pa.table({"user": users, "item": indices, "value": data})
    if len(empty):
        nothing = {"user": empty, "item": pa.nulls(len(empty), table.schema.field("item").type), "value": np.ones(len(empty), data.dtype)}
        table = pa.concat_tables([table, pa.table(nothing, schema=table.schema)])
    return TableInMemory(name, f"a matrix of {len(lengths):,} rows", table.schema.names, empty_users=True, table=table)


@dataclass
class InArrow(Source):
    """A source that DuckDB reads as Arrow."""

    @abstractmethod
    def rows(self) -> pa.Table | pa.RecordBatchReader:
        """All columns, from the first row on."""

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns."""
        known = f"memory {id(self)}"
        connection.register(known, self.rows())
        return sql.name(known)

    def first_mistake(self, columns: Columns) -> str | None:
        """The first row that breaks a rule, as a sentence; None when every row keeps them."""
        mistakes = []
        with duckdb.connect() as database:
            for role, (column, expression) in columns.expressions().items():
                if role == "item" and self.empty_users:
                    continue
                cell = f"SELECT row_number() OVER () AS number, CAST({sql.name(column)} AS VARCHAR), {expression} AS read"
                rows = f"SELECT * FROM ({cell} FROM {self.scan(database)}) WHERE read IS NULL ORDER BY number LIMIT 1"
                for number, text, _ in database.execute(rows).fetchall():
                    mistakes.append((number, f"{self.name}: row {number}: {broken(column, role, text)}"))
        return min(mistakes)[1] if mistakes else None


@dataclass
class TableInMemory(InArrow):
    """An Arrow table."""

    table: pa.Table = field(kw_only=True)

    def rows(self) -> pa.Table:
        """The table."""
        return self.table
