"""Sources of interactions as SQL: columns of roles, their rules, and the first row that breaks one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import duckdb

from widenet.arguments import check_choice
from widenet.data.columns import (
    RULES,
    choose_column,
    finite,
    identifier,
    is_moment,
    listed,
    literal,
    number,
    quoted,
    seconds,
)
from widenet.data.ingest_arguments import FORMATS, IngestArguments
from widenet.errors import DataError, OptionError, reason_of

ROW_NUMBER = '"number of the row"'

BLOCK_BYTES = 2**20
_LIST = r"(?s)\[.*\]|\{.*\}"
"""A cell that may be a list of texts."""
SPACES = "space"
"""The delimiter for any run of spaces and tabs."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options that say how to read files; None if they were not given.

    Attributes:
        format: Name of the format.
        delimiter: Column delimiter.
        columns: Names of the columns of a table.
        decimal: Decimal separator of a table's numbers.
        quote: Quotes cells of a table; "" if none does.
        comment: Begins lines to leave out; "" if none does.
        roles: The options of the columns that a header names, each with the name that was given.
        prefix: "" for interactions; "users_", "items_" or "titles_" for tables beside them, of which alone
            `columns` and `decimal` are given.
        first_line: Number of the first line of sessions, which is the user's id.

    Raises:
        OptionError: An option is wrong.
    """

    format: str | None = None
    delimiter: str | None = None
    columns: Sequence[str] | None = None
    decimal: str | None = None
    quote: str | None = None
    comment: str | None = None
    roles: Mapping[str, str | None] = field(default_factory=lambda: {"user": None, "item": None})
    prefix: str = ""
    first_line: int = 1

    def __post_init__(self) -> None:
        size = len(("," if self.delimiter is None else self.delimiter).encode())
        check_choice("format", self.format, FORMATS)
        check_choice("decimal", self.decimal, (".", ","))
        OptionError.require(
            self.delimiter is None
            or self.delimiter == SPACES
            or (1 <= size <= 4 and (not set(self.delimiter) & set('"\r\n'))),
            "must be 1 to 4 bytes without quotes and line ends, or tab or space",
            option="delimiter",
            value=self.delimiter,
        )
        OptionError.require(
            not (self.quote and (len(self.quote.encode()) > 1 or self.quote in "\r\n")),
            "must be one character of ASCII",
            option="quote",
            value=self.quote,
        )

    @property
    def given_for_tables(self) -> list[str]:
        """The options that were given and are for tables alone."""
        names = ("columns",) if self.prefix else ("delimiter", "columns", "decimal", "quote")
        return [self.option(name) for name in names if getattr(self, name) is not None]

    def option(self, name: str) -> str:
        """The name of an option with its prefix."""
        return f"{self.prefix}{name}"


class Scan(NamedTuple):
    """How to scan a source: numbered rows in their order, and leaving out lines that DuckDB refuses."""

    numbered: bool = False
    skipping: bool = False


@dataclass(frozen=True)
class Text:
    """A text file without compression, all of whose lines end in LF, or all in CRLF.

    Attributes:
        path: The file.
        name: Name in messages.
        num_lines: Number of lines.
        has_quotes: Whether it holds the sign ".
    """

    path: Path
    name: str
    num_lines: int
    has_quotes: bool


@dataclass(frozen=True)
class Fault:
    """A rule that rows may break: the SQL condition, and the column to show."""

    rule: str
    condition: str
    column: str | None = None
    option: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table of interactions, or of other rows.

    Attributes:
        name: Name in messages.
        kind: Description of the format.
        columns: Names of the columns.
        table: Returns the SQL table of a scan, which is valid for one query on the connection. It has these
            columns, those of JSON as JSON, and maybe others that `faults` need.
        faults: Rules of the format.
        lists: Columns of lists, whose entries are interactions.
        floats: Columns of floating-point numbers.
        integers: Columns whose type is a whole number; texts have none.
        is_json: Whether cells are JSON.
        has_own_columns: Whether the format itself gives the columns.
        decimal: Decimal separator of numbers.
        row: Word for a row in messages.
        text_file: The file, if it is a text.
        line_of: Returns the line of a row that DuckDB counted.
        comment: Begins lines that are left out, if DuckDB may refuse them.
    """

    name: str
    kind: str
    columns: Sequence[str]
    table: Callable[[duckdb.DuckDBPyConnection, Scan], str]
    faults: Sequence[Fault] = ()
    lists: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()
    integers: frozenset[str] = frozenset()
    is_json: bool = False
    has_own_columns: bool = False
    decimal: str = "."
    row: str = "line"
    text_file: Text | None = None
    line_of: Callable[[int], int] = int
    comment: str = ""

    def text(self, column: str) -> str:
        """The SQL of a cell as an id; NULL for an empty one, and for a list or an object of JSON."""
        cell = quoted(column)
        if self.is_json and column in self.lists:
            cell = f"CASE WHEN len({cell}) = 1 THEN {cell}[1] END"
        return identifier(_text_of_json(cell) if self.is_json else cell, column in self.floats)

    def cells(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns as ids."""
        cells = ", ".join(f"{self.text(column)} AS {quoted(column)}" for column in self.columns)
        return f"(SELECT {cells} FROM {self.table(connection, Scan())})"

    def value_of(self, role: str, column: str, time_format: str | None = None) -> str:
        """The SQL of a role's value in a cell, or of the list of values in a column of lists."""

        def of(cell: str) -> str:
            text = _text_of_json(cell) if self.is_json else cell
            if role in ("user", "item"):
                return identifier(text, column in self.floats)
            if role == "time":
                return seconds(text, self.decimal, time_format)
            if role == "is_moment":
                return is_moment(text, self.decimal)
            is_number = column in self.floats or column in self.integers
            return finite(cell) if is_number else number(text, self.decimal)

        if column not in self.lists:
            return of(quoted(column))
        return f"list_transform({quoted(column)}, lambda entry: {of('entry')})"

    def split(self, column: str, separator: str) -> "Source":
        """The source with the lists of texts that a separator makes of a column."""
        text, entry = self.text(column), "to_json(trim(x))" if self.is_json else "trim(x)"
        texts = f"list_filter(string_split({text}, {literal(separator)}), lambda x: trim(x) <> '')"
        entries = f"list_transform(coalesce({texts}, []), lambda x: {entry}) AS {quoted(column)}"

        def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
            return f"(SELECT * REPLACE ({entries}) FROM {self.table(connection, scan)})"

        return replace(self, table=table, lists=self.lists | {column}, floats=self.floats - {column})


def _text_of_json(value: str) -> str:
    """The SQL of a JSON value as text; NULL for null, a list or an object."""
    return f"CASE WHEN json_type({value}) NOT IN ('OBJECT', 'ARRAY') THEN {value} ->> '$' END"


def table_of(source: Source, options: IngestArguments) -> "Table":
    """Choose the column of each role that is read.

    Raises:
        DataError: A column does not exist, has two roles, or has lists where none can be.
    """
    columns = {
        role: choose_column(source.name, source.columns, role, getattr(options, role))
        for role in ("user", "item", *options.numbers)
    }
    for role, column in columns.items():
        first = next(each for each in columns if columns[each] == column)
        DataError.require(
            first == role, f"cannot be both {first} and {role}", place=source.name, column=column
        )
        DataError.require(
            not (column in source.lists and (role == "user" or columns["item"] not in source.lists)),
            "must not hold lists",
            place=source.name,
            column=column,
            option=role,
        )
    item, separator = columns["item"], options.item_separator
    if separator and item not in source.lists:
        source = source.split(item, separator)
    elif separator is None and item not in source.lists | source.integers | source.floats:
        rule = 'must say what separates items, or "" if each cell holds one; a cell looks like a list'
        cell = f"CAST({quoted(item)} AS VARCHAR)"
        several = f"coalesce(contains({cell}, '|') OR regexp_full_match({cell}, {literal(_LIST)}), false)"
        source = replace(source, faults=[*source.faults, Fault(rule, several, option="item_separator")])
    return Table(source, columns, options.time_format)


@dataclass(frozen=True)
class Table:
    """A source with the column of each role that is read.

    Attributes:
        source: The source.
        columns: The column of each role.
        time_format: Format of the times.
    """

    source: Source
    columns: Mapping[str, str]
    time_format: str | None = None

    @property
    def values(self) -> dict[str, str]:
        """The SQL of each role's value, or of the list of values."""
        return {
            role: self.source.value_of(role, column, self.time_format)
            for role, column in self.columns.items()
        }

    @property
    def faults(self) -> list[Fault]:
        """Everything that a row may be refused for, in the order in which it is told."""
        source, values = self.source, self.values
        faults = [*source.faults]
        for role, column in self.columns.items():
            rule, option = RULES[role], None
            if role == "time" and self.time_format:
                rule, option = f"must have the format {self.time_format}", "time_format"
            missing = f"{values[role]} IS NULL"
            if column in source.lists:
                missing += f" OR list_count({values[role]}) < len({values[role]})"
            faults.append(Fault(rule, missing, column, option))
            if role in ("value", "time") and column in source.lists:
                other = f"len({values[role]}) <> len({values['item']})"
                faults.append(Fault("must have as many entries as the items", other, column))
        return faults

    @property
    def is_bad(self) -> str:
        """The SQL condition of a row that breaks a rule."""
        return " OR ".join(f"coalesce({fault.condition}, true)" for fault in self.faults)

    def interactions(self, connection: duckdb.DuckDBPyConnection, skipping: bool) -> str:
        """The SQL query of `user`, `item`, `value`, `time` and `is_moment`, one row for each interaction.

        A row with a fault has no user. A missing value is 1, and a missing time is 0. A user with an empty
        list of items has one row without an item. Whether a time is no number is NULL under a format.
        """
        columns, values = (
            dict(self.columns),
            {"value": "1.0", "time": "0.0", "is_moment": "NULL"} | self.values,
        )
        if "time" in columns and self.time_format is None:
            columns["is_moment"] = columns["time"]
            values["is_moment"] = self.source.value_of("is_moment", columns["time"])
        rows = ", ".join(f"{value} AS {quoted(role)}" for role, value in values.items())
        table = self.source.table(connection, Scan(skipping=skipping))
        query = f"SELECT {rows}, {self.is_bad} AS is_bad FROM {table}"
        read = ['CASE WHEN NOT is_bad THEN "user" END AS "user"']
        for role in ("item", "value", "time", "is_moment"):
            is_list = columns.get(role) in self.source.lists
            one = f"CASE WHEN NOT is_bad THEN {role} END"
            several = f"unnest(CASE WHEN NOT is_bad AND len({role}) > 0 THEN {role} ELSE [NULL] END)"
            read.append(f"{several if is_list else one} AS {role}")
        return f"SELECT {', '.join(read)} FROM ({query})"

    def first_fault(self) -> DataError | None:
        """Make the error for the first row that breaks a rule; None if there is none."""
        source, faults = self.source, self.faults
        cases = " ".join(
            f"WHEN coalesce({fault.condition}, true) THEN {place}" for place, fault in enumerate(faults)
        )
        # All columns are read, since DuckDB checks no others.
        cells = ", ".join(f"CAST({quoted(column)} AS VARCHAR)" for column in source.columns)
        with duckdb.connect(config={"threads": 1}) as connection:
            rows = source.table(connection, Scan(numbered=True, skipping=True))
            query = f"SELECT {ROW_NUMBER}, CASE {cases} END AS fault, [{cells}] AS cells FROM {rows}"
            first = f"SELECT * FROM ({query}) WHERE fault IS NOT NULL ORDER BY 1 LIMIT 1"
            found = next(iter(connection.execute(first).fetchall()), None)
            refused = refusals(connection, source)
        line = source.line_of(found[0]) if found else None
        if refused and source.text_file is not None:
            refused_line = line_at(source.text_file, refused[0][0])
            if line is None or refused_line <= line:
                return DataError(reason_of(ValueError(refused[0][1])), place=source.name, line=refused_line)
        if found is None or line is None:
            return None
        fault = faults[found[1]]
        cell = None if fault.column is None else found[2][source.columns.index(fault.column)]
        place = source.name if source.row == "line" else f"{source.name}: {source.row} {line}"
        line = line if source.row == "line" else None
        return DataError(
            fault.rule, place=place, line=line, column=fault.column, option=fault.option, value=cell
        )


def line_at(text: Text, position: int) -> int:
    """The line with a byte of the text."""
    line = 1
    with text.path.open("rb") as file:
        while position > 0 and (block := file.read(min(position, BLOCK_BYTES))):
            line += block.count(b"\n")
            position -= len(block)
    return line


def refusals(connection: duckdb.DuckDBPyConnection, source: Source) -> list[tuple[int, str]]:
    """The lines of a source that DuckDB left out in scans of this connection, except for comments.

    Returns:
        The position of each in the text, in bytes, and the reason.
    """
    if source.text_file is None:
        return []
    query = (
        "SELECT line_byte_position + CAST(starts_with(csv_line, chr(10)) AS INT), first(error_message)"
        " FROM reject_errors JOIN reject_scans USING (scan_id, file_id)"
        " WHERE file_path = ? AND NOT coalesce(starts_with(csv_line, ?), false)"
        " GROUP BY 1 ORDER BY 1"
    )
    try:
        path = str(source.text_file.path.absolute())
        return connection.execute(query, [path, source.comment or "\0"]).fetchall()
    except duckdb.CatalogException:  # no scan has left anything out
        return []


def mistake(tables: Iterable[Table], otherwise: str) -> DataError:
    """Make the error for the first row that breaks a rule, or else for this reason."""
    names = []
    for table in tables:
        names.append(table.source.name)
        try:
            error = table.first_fault()
        except duckdb.Error:
            continue  # the file is unreadable; `otherwise` has the reason
        if error is not None:
            return error
    return DataError(f"cannot be read: {otherwise}", place=", ".join(names))


class Sources:
    """The sources of one part, perhaps none, each with its columns.

    Attributes:
        numbers: The columns that are read, of `value` and `time`.
        tables: Each source with its columns.
        skipping: Whether scans leave out lines that DuckDB refuses.

    Raises:
        DataError: A source lacks a column, or the sources have different ones.
    """

    def __init__(self, sources: Sequence[Source], options: IngestArguments) -> None:
        self.numbers = options.numbers
        self.tables = [table_of(each, options) for each in sources]
        self.skipping = options.skip_bad_lines > 0 or any(source.comment for source in sources)

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL query of `Table.interactions` of all sources; it is valid once, on this connection."""
        nothing = (
            "SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time, true AS is_moment WHERE false"
        )
        queries = [f"({table.interactions(connection, self.skipping)})" for table in self.tables]
        return " UNION ALL ".join(queries) or nothing

    @property
    def short_names(self) -> list[str]:
        """Names of all sources, without folders."""
        return [table.source.name.rpartition("/")[2] for table in self.tables]

    @property
    def names(self) -> str:
        """Names of all sources, for messages."""
        return ", ".join(table.source.name for table in self.tables)

    @property
    def time_column(self) -> str | None:
        """Column with the times; None if times are not read."""
        return self.tables[0].columns.get("time") if self.tables else None

    @property
    def has_whole_items(self) -> bool:
        """Whether items are whole numbers by their type in every source."""
        return all(table.columns["item"] in table.source.integers for table in self.tables)

    def described(self) -> list[str]:
        """Describe in one line for each source how it is read: its format, its columns, the unread ones."""
        lines = []
        for name, table in zip(self.short_names, self.tables, strict=True):
            others = [column for column in table.source.columns if column not in table.columns.values()]
            roles = ", ".join(f"{role} = {column}" for role, column in table.columns.items())
            line = f"reading {name} as {table.source.kind}: {roles}"
            lines.append(line + (f"; not read: {listed(others)}" if others else ""))
        return lines

    def mistake(self, otherwise: str) -> DataError:
        """Make the error for the first row that breaks a rule, or else for this reason."""
        return mistake(self.tables, otherwise)

    def num_refused(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Number of lines that DuckDB left out in scans of this connection."""
        return sum(len(refusals(connection, table.source)) for table in self.tables)


def check_same_columns(parts: Iterable[Sources]) -> None:
    """Raise DataError if the roles of two sources are in columns of different names.

    Columns that the format gives have no names of their own.
    """
    tables = [table for sources in parts for table in sources.tables if not table.source.has_own_columns]
    for table in tables[1:]:
        first = tables[0]
        DataError.require(
            table.columns == first.columns,
            f"must have the columns of {first.source.name}, {', '.join(first.columns.values())}",
            place=table.source.name,
            value=", ".join(table.columns.values()),
        )
