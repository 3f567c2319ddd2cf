"""Sessions: each line holds the items of one user, separated by spaces or commas.

The user's id is the number of the line.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa

from widenet.data.formats import sql
from widenet.data.formats.adjacency import unreadable
from widenet.data.formats.columns import Columns
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import TextFile

_LINES_AT_ONCE = 2**16
_SCHEMA = pa.schema([("number", pa.int64()), ("line", pa.string())])


def opened(path: Path, name: str, reading: Reading) -> "Sessions":
    """Open a file as sessions."""
    kind = f"sessions (items only; line {reading.first_line} is the user {reading.first_line})"
    return Sessions(
        name, kind, ["user", "item"], empty_users=True, file=TextFile(path), first_line=reading.first_line
    )


FORMAT = Format(opened, (".sessions",))


@dataclass
class Sessions(TextSource):
    """A file of sessions; a line without items is a user without items."""

    first_line: int = 1

    @property
    def num_lines(self) -> int:
        """Number of lines of the file."""
        with self.file.opened() as file:
            return sum(1 for _ in file)

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of `user` and `item`.

        Lines are numbered before DuckDB reads them, because it reads them in any order.
        """
        table = f"sessions {self.file.path}"
        connection.register(table, pa.RecordBatchReader.from_batches(_SCHEMA, self._numbered()))
        words = "list_filter(string_split_regex(line, '[\\s,]+'), lambda word: word <> '')"
        items = "unnest(CASE WHEN len(words) > 0 THEN words ELSE [NULL] END)"
        listed = f'SELECT CAST(number AS VARCHAR) AS "user", {words} AS words FROM {sql.name(table)}'
        return f'(SELECT "user", {items} AS item FROM ({listed}))'

    def _numbered(self) -> Iterator[pa.RecordBatch]:
        number = self.first_line
        with self.file.opened() as file:
            while lines := list(islice(file, _LINES_AT_ONCE)):
                if number == self.first_line:
                    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                numbers = pa.array(range(number, number + len(lines)), pa.int64())
                yield pa.RecordBatch.from_arrays([numbers, pa.array(lines, pa.string())], schema=_SCHEMA)
                number += len(lines)

    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not UTF-8, are too long or hold a NUL; any other text is valid."""
        yield from unreadable(self.file)
