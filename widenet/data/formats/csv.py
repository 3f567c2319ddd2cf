"""CSV with any delimiter: each line is an interaction; the first line may name the columns."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from widenet.data.formats import adjacency, sql
from widenet.data.formats.columns import OBVIOUS, Columns, first_broken, is_number, plain
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import NO_NUL, NO_UTF8, WHITE_SPACE, TextFile, is_utf8
from widenet.errors import DataError

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", "::": "double colons"}
"""The delimiters that can be guessed, with their names in messages."""

_LONGEST_LINE_BYTES = 2**21
_BUFFER_BYTES = 2**23
"""A quarter of DuckDB's default, because each of its threads holds several buffers."""

_Row = list[str] | str
"""The cells of a line, or the reason why it is not CSV."""


def opened(path: Path, name: str, reading: Reading) -> "Csv":
    """Open a file; guesses from its first lines whatever `reading` leaves open."""
    file = TextFile(path)
    lines = file.sample()
    decimal = reading.decimal or "."
    delimiter = reading.delimiter or guessed_delimiter(lines, decimal)
    first = next(_cells(lines, delimiter), [])
    if any("\0" in cell for cell in first):
        raise DataError(f"{name}: line 1: {NO_NUL}")
    if reading.columns and list(reading.columns) == first:
        raise DataError("holds the names already", place=name, line=1, option=f"{reading.prefix}columns")
    if reading.has_header is None and any(
        is_number(cell, decimal) for cell in reading.named.intersection(first)
    ):
        rule = "must say whether line 1 is a header: it holds a number that names a column"
        raise DataError(rule, place=name, option=f"{reading.prefix}header")
    has_header = not reading.columns and (
        _names_columns(first, reading.named, decimal) if reading.has_header is None else reading.has_header
    )
    if has_header:
        if not any(first):
            raise DataError(f"{name}: line 1: must name the columns; it is empty.")
        if not all(map(is_utf8, first)):
            raise DataError(f"{name}: line 1: {NO_UTF8}")
        names = [cell or str(place) for place, cell in enumerate(first, start=1)]
    else:
        names = list(reading.columns or map(str, range(1, len(first) + 1)))
    if len(names) != len(first):
        columns = f"{', '.join(names)} of {reading.option('columns')}"
        raise DataError(f"{name}: line 1: must have the columns {columns}; got {len(first)}.")
    lowered = [each.lower() for each in names]
    if twice := next((each for each in names if lowered.count(each.lower()) > 1), None):
        raise DataError(f'{name}: line 1: column names must differ in any case; "{twice}" occurs twice.')
    kind = f"csv ({_separator(delimiter)}, {'line 1 names the columns' if has_header else 'no header'})"
    # In a table of more columns without a header, the item may be any column.
    is_clear = len(names) == 2 or (len(names) > 2 and (reading.prefix or reading.named))
    roles = {"user": "1", "item": "2"} if is_clear and not (has_header or reading.columns) else {}
    kind_of_source = Spaced if delimiter == WHITE_SPACE else Csv
    return kind_of_source(
        name, kind, names, roles, decimal=decimal, file=file, delimiter=delimiter, has_header=has_header
    )


FORMAT = Format(opened, (".csv", ".tsv"))


@dataclass
class Csv(TextSource):
    """A CSV file; every column is text, quoted with `"`, which is doubled inside quotes."""

    delimiter: str = ","
    has_header: bool = True

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
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
        """The SQL query of `Columns.interactions`; a line that repeats the header gets no user."""
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
        """Yield the lines that are not CSV, lack a column, or have a cell that breaks a rule.

        A row with line ends within quotes has several lines.
        """
        for numbers, row in _rows(self.file.lines(), self.delimiter):
            if numbers.start == 1 and self.has_header:
                continue
            if row and (rule := self._rule_broken(row, columns)):
                yield from ((number, rule) for number in numbers)

    def _rule_broken(self, row: _Row, columns: Columns) -> str | None:
        if isinstance(row, str):
            return f"must be CSV; {row}."
        if len(row) != len(self.columns):
            return f"must have {len(self.columns)} columns; got {len(row)}."
        if not all(map(is_utf8, row)):
            return NO_UTF8
        cells = dict(zip(self.columns, row, strict=True))
        if self.has_header and (cells[columns.user], cells[columns.item]) == (columns.user, columns.item):
            return "must hold data; it repeats the names of the columns."
        return first_broken(cells, columns)


@dataclass
class Spaced(Csv):
    """A file whose columns are separated by runs of spaces and tabs.

    Lines may begin and end with spaces. Quotes are not allowed.
    """

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns, as text; DuckDB fails at a line with other columns."""
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
            return "must not hold quotes if runs of spaces separate the columns."
        return super()._rule_broken(row, columns)


def _separator(delimiter: str) -> str:
    """The name of a delimiter in messages."""
    if delimiter == WHITE_SPACE:
        return "runs of spaces"
    return DELIMITERS.get(delimiter, f'delimiter "{delimiter}"')


def guessed_delimiter(lines: Sequence[str], decimal: str = ".") -> str:
    """Guess the delimiter from the first lines.

    Prefers a delimiter that gives all lines the same number of cells, and among these the one with the most
    cells. Otherwise it is the most frequent one in the first line.
    """
    if not lines:
        return ","
    widths = {delimiter: [len(row) for row in _cells(lines, delimiter) if row] for delimiter in DELIMITERS}
    even = [delimiter for delimiter, counts in widths.items() if len(set(counts)) == 1 and counts[0] > 1]
    if even:
        return max(
            even, key=lambda delimiter: (widths[delimiter][0], delimiter != decimal, delimiter == "::")
        )
    return max(DELIMITERS, key=lambda delimiter: lines[0].count(delimiter))


def _names_columns(first: Sequence[str], named: frozenset[str], decimal: str) -> bool:
    """Whether a first line names columns: it has a named or an obvious column, or no numbers."""
    obvious = {name for names in OBVIOUS.values() for name in names}
    if any(cell in named or plain(cell) in obvious for cell in first):
        return True
    return not any(is_number(cell, decimal) for cell in first)


def _cells(lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    for _, row in _rows(iter(lines), delimiter):
        yield row if isinstance(row, list) else []


def _rows(lines: Iterator[str], delimiter: str) -> Iterator[tuple[range, _Row]]:
    """Yield the rows of a text, each with the numbers of its lines.

    After a row that is not CSV, parsing continues at the next line.
    """
    if delimiter == WHITE_SPACE:
        yield from (
            (range(number, number + 1), re.findall(r"[^ \t\r\n\f]+", line))
            for number, line in enumerate(lines, start=1)
        )
        return
    if len(delimiter) > 1:
        yield from (
            (range(number, number + 1), line.rstrip("\r\n").split(delimiter))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        )
        return
    number = 1
    held: list[str] = []
    waiting: list[str] = []

    def fed_lines() -> Iterator[str]:
        while True:
            line = waiting.pop() if waiting else next(lines, None)
            if line is None:
                return
            held.append(line)
            yield line

    reader = csv.reader(fed_lines(), delimiter=delimiter, strict=True)
    while True:
        try:
            row: _Row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = str(error)
            waiting.extend(reversed(held[1:]))
            del held[1:]
            reader = csv.reader(fed_lines(), delimiter=delimiter, strict=True)
        yield range(number, number + len(held)), row
        number += len(held)
        held.clear()
