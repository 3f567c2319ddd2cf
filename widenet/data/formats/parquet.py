"""Parquet: columns of any type that has a text form."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, broken
from widenet.errors import DataError

SUFFIXES: tuple[str, ...] = (".parquet", ".pq")
EMPTY_USERS = False


def column_names(path: Path) -> list[str]:
    """The names of the columns."""
    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: must be a Parquet file; {error}. Check the file, or name another --format.") from error


def scan(path: Path) -> str:
    """The SQL table of all columns."""
    return sql.read("read_parquet", path)


def first_mistake(path: Path, columns: Columns) -> str | None:
    """The first row that breaks a rule, as a sentence; None when every row keeps them."""
    mistakes = []
    with duckdb.connect() as database:
        for role, (column, expression) in columns.expressions().items():
            table = sql.read("read_parquet", path, "file_row_number = true")
            cell = f"SELECT file_row_number, CAST({sql.name(column)} AS VARCHAR) FROM {table}"  # noqa: S608
            row = database.execute(f"{cell} WHERE ({expression}) IS NULL ORDER BY file_row_number LIMIT 1").fetchone()
            if row:
                mistakes.append((row[0], f"{path}: row {row[0] + 1}: {broken(column, role, row[1])}"))
    return min(mistakes)[1] if mistakes else None
