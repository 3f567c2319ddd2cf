"""Adjacency text: each line holds a user and its items, separated by spaces.

A user may have several lines, or no items.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import NO_NUL, NO_UTF8, TextFile
from widenet.regular_files import LONGEST_LINE_BYTES


def opened(path: Path, name: str, reading: Reading) -> "Adjacency":  # noqa: ARG001
    """Open a file as adjacency text."""
    kind = "adjacency (the first word of a line is the user)"
    return Adjacency(name, kind, ["user", "item"], empty_users=True, file=TextFile(path))


FORMAT = Format(opened, (".adj", ".adjacency"))


@dataclass
class Adjacency(TextSource):
    """An adjacency text; a user without items has one row without an item."""

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of `user` and `item`."""
        words = f"SELECT {words_of('line')} AS words FROM {sql.lines(self.file)}"
        items = "unnest(CASE WHEN len(words) > 1 THEN words[2:] ELSE [NULL] END)"
        return f'(SELECT words[1] AS "user", {items} AS item FROM ({words}) WHERE len(words) > 0)'

    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not UTF-8, are too long or hold a NUL; any other text is valid."""
        yield from unreadable(self.file)


def words_of(line: str) -> str:
    """The SQL list of the words in a line, given the SQL of the line."""
    return f"list_filter(string_split_regex({line}, '\\s+'), lambda word: word <> '')"


def unreadable(file: TextFile) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that are not UTF-8, are too long or hold a NUL."""
    with file.opened() as lines:
        for number, line in enumerate(lines, start=1):
            if len(line) > LONGEST_LINE_BYTES:
                yield number, f"must have at most {LONGEST_LINE_BYTES:,} bytes."
            try:
                line.decode()
            except UnicodeDecodeError:
                yield number, NO_UTF8
            if b"\0" in line:
                yield number, NO_NUL
