"""CSV and its kin: a line an interaction, with any delimiter; the first line may name the columns."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from widenet.data.formats import adjacency, sql
from widenet.data.formats.columns import OBVIOUS, Columns, first_broken, is_number, plain
from widenet.data.formats.guesses import LISTS, holds_lists, time_like
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import NO_NUL, NO_UTF8, WHITE_SPACE, TextFile
from widenet.errors import DataError

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", "::": "double colons"}
"""Those that are guessed, in words."""

_LONGEST_LINE_BYTES = 2**21
_BUFFER_BYTES = 2**23
"""A quarter of DuckDB's own: each of its threads holds some."""

_Row = list[str] | str
"""The cells of a line, or why it has none."""


def opened(path: Path, name: str, reading: Reading) -> "Csv":
    """The source in a file; what `reading` does not say is guessed from the first lines."""
    file = TextFile(path)
    lines = file.sample()
    decimal = reading.decimal or "."
    delimiter = reading.delimiter or guessed_delimiter(lines, decimal)
    first = next(_cells(lines, delimiter), [])
    if any("\0" in cell for cell in first):
        raise DataError(f"{name}: line 1: {NO_NUL}")
    has_header = not reading.columns and (
        _names_columns(first, reading.named, decimal) if reading.has_header is None else reading.has_header
    )
    if has_header:
        if not any(first):
            raise DataError(f"{name}: line 1: must name the columns; it is empty.")
        names = [cell or str(place) for place, cell in enumerate(first, start=1)]
    else:
        names = list(reading.columns or map(str, range(1, len(first) + 1)))
    if len(names) != len(first):
        raise DataError(
            f"{name}: line 1: must have the columns {', '.join(names)}; got {len(first)}. Correct"
            f" {reading.option('columns')}."
        )
    lowered = [each.lower() for each in names]
    if len(set(lowered)) < len(names):
        twice = next(each for each in names if lowered.count(each.lower()) > 1)
        how = "" if names.count(twice) > 1 else ", but for the case of letters"
        raise DataError(f'{name}: line 1: column names must differ; "{twice}" stands twice{how}. Rename one.')
    words = (
        "runs of spaces"
        if delimiter == WHITE_SPACE
        else DELIMITERS.get(delimiter, f'delimiter "{delimiter}"')
    )
    kind = f"csv ({words}, {'line 1 names the columns' if has_header else 'no header'})"
    roles = {} if has_header or reading.columns or len(names) < 2 else {"user": "1", "item": "2"}
    doubt = (
        f", or say {reading.option('header', False)} if line 1 is data"
        if has_header and reading.has_header is None
        else ""
    )
    if len(names) == 1 and len(first[0].split()) > 1 and reading.delimiter is None:
        doubt += f", or say {reading.option('delimiter', 'space')} if spaces part the columns"
    suspects = _suspects(names, list(_cells(lines, delimiter))) if roles else {}
    made = Spaced if delimiter == WHITE_SPACE else Csv
    return made(
        name,
        kind,
        names,
        roles,
        False,
        suspects,
        doubt,
        decimal,
        file=file,
        delimiter=delimiter,
        has_header=has_header,
    )


FORMAT = Format(opened, (".csv", ".tsv"))


@dataclass
class Csv(TextSource):
    """Every column is text; quotes are `"`, and twice inside quotes."""

    delimiter: str = ","
    has_header: bool = True

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:  # noqa: ARG002
        """The SQL table of all columns, as text."""
        columns = ", ".join(f"{sql.literal(name)}: 'VARCHAR'" for name in self.columns)
        self.file.check_end(_LONGEST_LINE_BYTES)
        header = "true" if self.has_header else "false"
        options = (
            f"header = {header}, auto_detect = false, quote = '\"', escape = '\"', compression ="
            f" '{self.file.compression}'"
        )
        options += f", max_line_size = {_LONGEST_LINE_BYTES}, buffer_size = {_BUFFER_BYTES}"
        return sql.read(
            "read_csv",
            self.file.path,
            f"columns = {{{columns}}}, delim = {sql.literal(self.delimiter)}, {options}",
        )

    def interactions(self, connection: duckdb.DuckDBPyConnection, columns: Columns) -> str:
        """The SQL query of `Columns.interactions`; a line that repeats the header has no user."""
        if not self.has_header:
            return super().interactions(connection, columns)
        user, item = sql.name(columns.user), sql.name(columns.item)
        is_header = f"{user} = {sql.literal(columns.user)} AND {item} = {sql.literal(columns.item)}"
        rows = (
            f"SELECT * REPLACE (CASE WHEN NOT coalesce({is_header}, false) THEN {user} END AS {user}) FROM"
            f" {self.scan(connection)}"
        )
        return columns.interactions(f"({rows})")

    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Lines that are no CSV, lack a column, or have a cell that breaks a rule."""
        for number, row in _rows(self.file.lines(), self.delimiter):
            if (number > 1 or not self.has_header) and row and (rule := self._rule_broken(row, columns)):
                yield number, rule

    def _rule_broken(self, row: _Row, columns: Columns) -> str | None:
        if isinstance(row, str):
            return f"must be CSV; {row}. Close the quotes, or remove them."
        if len(row) != len(self.columns):
            return (
                f"must have {len(self.columns)} columns; got {len(row)}. Quote text that holds the delimiter."
            )
        if any("\ufffd" in text for text in row):
            return NO_UTF8
        cells = dict(zip(self.columns, row, strict=True))
        if self.has_header and (cells[columns.user], cells[columns.item]) == (columns.user, columns.item):
            return "must hold data; it repeats the names of the columns. Remove the line."
        return first_broken(cells, columns)


@dataclass
class Spaced(Csv):
    """Columns that any run of spaces and tabs parts, at the start and the end of a line too; nothing is
    quoted.
    """

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:  # noqa: ARG002
        """The SQL table of all columns, as text; DuckDB raises an error for a line with other columns."""
        listed = ", ".join(
            f"words[{place}] AS {sql.name(name)}" for place, name in enumerate(self.columns, start=1)
        )
        words = (
            f"SELECT line, {adjacency.words_of('line')} AS words FROM"
            f" {sql.lines(self.file, int(self.has_header))}"
        )
        fits = f"len(words) = {len(self.columns)} AND NOT contains(line, '\"')"
        checked = (
            f"CASE WHEN {fits} THEN true WHEN len(words) > 0 THEN error('a line has other columns, or a"
            " quote') ELSE false END"
        )
        return f"(SELECT {listed} FROM ({words}) WHERE {checked})"

    def _rule_broken(self, row: _Row, columns: Columns) -> str | None:
        if any('"' in cell for cell in row):
            remedy = "Say `delimiter=' '` if one space parts them, or remove the quotes."
            return f"must not hold quotes where runs of spaces part the columns. {remedy}"
        if len(row) != len(self.columns):
            return f"must have {len(self.columns)} columns; got {len(row)}. Fix or remove the line."
        return super()._rule_broken(row, columns)


def _suspects(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """The columns that look like times or lists, and what they look like."""
    found = {}
    for name, cells in zip(
        names, zip(*(row for row in rows if len(row) == len(names)), strict=True), strict=False
    ):
        kind = time_like(cells)
        if kind or holds_lists(cells):
            found[name] = kind or LISTS
    return found


def guessed_delimiter(lines: Sequence[str], decimal: str = ".") -> str:
    """The delimiter that gives all lines one number of cells, the most if several do; otherwise the one
    that the first line has most of.
    """
    if not lines:
        return ","
    widths = {delimiter: [len(row) for row in _cells(lines, delimiter) if row] for delimiter in DELIMITERS}
    even = [delimiter for delimiter, found in widths.items() if len(set(found)) == 1 and found[0] > 1]
    if even:
        return max(
            even, key=lambda delimiter: (widths[delimiter][0], delimiter != decimal, delimiter == "::")
        )
    return max(DELIMITERS, key=lambda delimiter: lines[0].count(delimiter))


def _names_columns(first: Sequence[str], named: frozenset[str], decimal: str) -> bool:
    """Whether a first line names columns: one that is named or obvious, or else none that is a number."""
    obvious = {name for names in OBVIOUS.values() for name in names}
    if any(cell in named or plain(cell) in obvious for cell in first):
        return True
    return not any(is_number(cell, decimal) for cell in first)


def _cells(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    for _, row in _rows(iter(lines), delimiter):
        yield row if isinstance(row, list) else []


def _rows(lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, _Row]]:
    """The rows of a text, each with the number of its first line; after a row that is no CSV goes on with
    the next line.
    """
    if delimiter == WHITE_SPACE:
        yield from (
            (number, re.findall(r"[^ \t\r\n\f]+", line)) for number, line in enumerate(lines, start=1)
        )
        return
    if len(delimiter) > 1:
        yield from (
            (number, line.rstrip("\r\n").split(delimiter))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        )
        return
    number = 1
    held: list[str] = []
    waiting: list[str] = []

    def fed() -> Iterator[str]:
        while True:
            line = waiting.pop() if waiting else next(lines, None)
            if line is None:
                return
            held.append(line)
            yield line

    reader = csv.reader(fed(), delimiter=delimiter, strict=True)
    while True:
        try:
            row: _Row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = str(error)
            waiting.extend(reversed(held[1:]))
            del held[1:]
            reader = csv.reader(fed(), delimiter=delimiter, strict=True)
        yield number, row
        number += len(held)
        held.clear()
