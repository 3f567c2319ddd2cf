"""Parquet files."""

from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, broken
from widenet.data.formats.source import Format, Reading, Source
from widenet.errors import DataError, reason_of


def opened(path: Path, name: str, reading: Reading) -> "Parquet":  # noqa: ARG001
    """Open a file; columns of lists or objects are left out.

    Raises:
        DataError: The file is not a Parquet file.
    """
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{name}: must be a Parquet file; {reason_of(error)}.") from error
    columns = [column.name for column in schema if not pa.types.is_nested(column.type)]
    floats = frozenset(column.name for column in schema if pa.types.is_floating(column.type))
    integers = frozenset(column.name for column in schema if pa.types.is_integer(column.type))
    return Parquet(name, "Parquet", columns, floats=floats, integers=integers, path=path)


FORMAT = Format(opened, (".parquet", ".pq"), is_text=False, begins=lambda head: head.startswith(b"PAR1"))


@dataclass
class Parquet(Source):
    """A Parquet file."""

    path: Path = field(kw_only=True)

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns."""
        return sql.read("read_parquet", self.path)

    def first_mistake(self, columns: Columns) -> str | None:
        """Describe the first row that breaks a rule, as a sentence; None if there is none."""
        mistakes = []
        with duckdb.connect() as database:
            for role, (column, expression) in columns.expressions().items():
                table = sql.read("read_parquet", self.path, "file_row_number = true")
                cell = f"SELECT file_row_number, CAST({sql.name(column)} AS VARCHAR) FROM {table}"
                row = database.execute(
                    f"{cell} WHERE ({expression}) IS NULL ORDER BY file_row_number LIMIT 1"
                ).fetchone()
                if row:
                    mistakes.append(
                        (row[0], f"{self.name}: row {row[0] + 1}: {broken(column, role, row[1], columns)}")
                    )
        return min(mistakes)[1] if mistakes else None
