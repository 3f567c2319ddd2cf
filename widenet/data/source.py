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
        header: Whether line 1 of a table names the columns; None: if it has known or named ones.
        columns: Names of the columns of a table.
        decimal: Decimal separator of a table's numbers.
        quote: Quotes cells of a table; "" if none does.
        escape: Stands before a quote in a quoted cell; by default the quote itself.
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
    header: bool | None = None
    columns: Sequence[str] | None = None
    decimal: str | None = None
    quote: str | None = None
    escape: str | None = None
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
        for option, sign in (("quote", self.quote), ("escape", self.escape)):
            is_wrong = sign and (len(sign.encode()) > 1 or sign in "\r\n")
            OptionError.require(not is_wrong, "must be one character of ASCII", option=option, value=sign)

    @property
    def given_for_tables(self) -> list[str]:
        """The options that were given and are for tables alone."""
        names = (
            ("columns",) if self.prefix else ("delimiter", "header", "columns", "decimal", "quote", "escape")
        )
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
            columns, those of JSON as JSON, and maybe others that `own_faults` need.
        roles: The column of each role that is read.
        time_format: Format of the times.
        own_faults: Rules of the format.
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
    roles: Mapping[str, str] = field(default_factory=dict)
    time_format: str | None = None
    own_faults: Sequence[Fault] = ()
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

    def value_of(self, role: str, column: str) -> str:
        """The SQL of a role's value in a cell, or of the list of values in a column of lists."""

        def of(cell: str) -> str:
            text = _text_of_json(cell) if self.is_json else cell
            if role in ("user", "item"):
                return identifier(text, column in self.floats)
            if role == "time":
                return seconds(text, self.decimal, self.time_format)
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

    def where(self, column: str, texts: Sequence[str]) -> "Source":
        """The source with those rows alone that have one of some texts in a column.

        Raises:
            DataError: There is no such column of single values.
        """
        is_known = column in self.columns and column not in self.lists
        DataError.require(
            is_known, "must be a column of single values", place=self.name, option="where", value=column
        )
        stays = f"{self.text(column)} IN ({', '.join(map(literal, texts))})"

        def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
            return f"(SELECT * FROM {self.table(connection, scan)} WHERE {stays})"

        return replace(self, table=table, kind=f"{self.kind}, where {column} is {' or '.join(texts)}")

    @property
    def values(self) -> dict[str, str]:
        """The SQL of each role's value, or of the list of values."""
        return {role: self.value_of(role, column) for role, column in self.roles.items()}

    @property
    def faults(self) -> list[Fault]:
        """Everything that a row may be refused for, in the order in which it is told."""
        values, faults = self.values, [*self.own_faults]
        for role, column in self.roles.items():
            rule, option = RULES[role], None
            if role == "time" and self.time_format:
                rule, option = f"must have the format {self.time_format}", "time_format"
            missing = f"{values[role]} IS NULL"
            if column in self.lists:
                missing += f" OR list_count({values[role]}) < len({values[role]})"
            faults.append(Fault(rule, missing, column, option))
            if role in ("value", "time") and column in self.lists:
                other = f"len({values[role]}) <> len({values['item']})"
                faults.append(Fault("must have as many entries as the items", other, column))
        return faults

    def interactions(self, connection: duckdb.DuckDBPyConnection, skipping: bool) -> str:
        """The SQL query of `user`, `item`, `value`, `time` and `is_moment`, one row for each interaction.

        A row with a fault has no user. A missing value is 1, and a missing time is 0. A user with an empty
        list of items has one row without an item. Whether a time is no number is NULL under a format.
        """
        values = {"value": "1.0", "time": "0.0", "is_moment": "NULL"} | self.values
        columns = {"is_moment": self.roles.get("time")} | dict(self.roles)
        if "time" in self.roles and self.time_format is None:
            values["is_moment"] = self.value_of("is_moment", self.roles["time"])
        rows = ", ".join(f"{value} AS {quoted(role)}" for role, value in values.items())
        table = self.table(connection, Scan(skipping=skipping))
        is_bad = " OR ".join(f"coalesce({fault.condition}, true)" for fault in self.faults)
        query = f"SELECT {rows}, {is_bad} AS is_bad FROM {table}"
        read = ['CASE WHEN NOT is_bad THEN "user" END AS "user"']
        for role in ("item", "value", "time", "is_moment"):
            is_list = columns.get(role) in self.lists
            one = f"CASE WHEN NOT is_bad THEN {role} END"
            several = f"unnest(CASE WHEN NOT is_bad AND len({role}) > 0 THEN {role} ELSE [NULL] END)"
            read.append(f"{several if is_list else one} AS {role}")
        return f"SELECT {', '.join(read)} FROM ({query})"

    def first_fault(self) -> DataError | None:
        """Make the error for the first row that breaks a rule; None if there is none."""
        faults = self.faults
        cases = " ".join(
            f"WHEN coalesce({fault.condition}, true) THEN {place}" for place, fault in enumerate(faults)
        )
        # All columns are read, since DuckDB checks no others.
        cells = ", ".join(f"CAST({quoted(column)} AS VARCHAR)" for column in self.columns)
        with duckdb.connect(config={"threads": 1}) as connection:
            rows = self.table(connection, Scan(numbered=True, skipping=True))
            query = f"SELECT {ROW_NUMBER}, CASE {cases} END AS fault, [{cells}] AS cells FROM {rows}"
            first = f"SELECT * FROM ({query}) WHERE fault IS NOT NULL ORDER BY 1 LIMIT 1"
            found = next(iter(connection.execute(first).fetchall()), None)
            refused = refusals(connection, self)
        line = self.line_of(found[0]) if found else None
        if refused and self.text_file is not None:
            refused_line = line_at(self.text_file, refused[0][0])
            if line is None or refused_line <= line:
                return DataError(reason_of(ValueError(refused[0][1])), place=self.name, line=refused_line)
        if found is None or line is None:
            return None
        fault = faults[found[1]]
        cell = None if fault.column is None else found[2][self.columns.index(fault.column)]
        place = self.name if self.row == "line" else f"{self.name}: {self.row} {line}"
        line = line if self.row == "line" else None
        return DataError(
            fault.rule, place=place, line=line, column=fault.column, option=fault.option, value=cell
        )


def _text_of_json(value: str) -> str:
    """The SQL of a JSON value as text; NULL for null, a list or an object."""
    return f"CASE WHEN json_type({value}) NOT IN ('OBJECT', 'ARRAY') THEN {value} ->> '$' END"


def table_of(source: Source, options: IngestArguments) -> Source:
    """Choose the column of each role that is read.

    Raises:
        DataError: A column does not exist, has two roles, or has lists where none can be.
        OptionError: A condition has no texts.
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
    for column, wanted in (options.where or {}).items():
        texts = [wanted] if isinstance(wanted, str) else wanted
        are_texts = isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)
        OptionError.require(are_texts and texts, "must give texts for a column", option="where", value=wanted)
        source = source.where(column, texts)
    item, separator = columns["item"], options.item_separator
    if separator and item not in source.lists:
        source = source.split(item, separator)
    elif separator is None and item not in source.lists | source.integers | source.floats:
        rule = 'must say what separates items, or "" if each cell holds one; a cell looks like a list'
        cell = f"CAST({quoted(item)} AS VARCHAR)"
        several = f"coalesce(contains({cell}, '|') OR regexp_full_match({cell}, {literal(_LIST)}), false)"
        source = replace(
            source, own_faults=[*source.own_faults, Fault(rule, several, option="item_separator")]
        )
    return replace(source, roles=columns, time_format=options.time_format)


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


def mistake(sources: Iterable[Source], otherwise: str) -> DataError:
    """Make the error for the first row that breaks a rule, or else for this reason."""
    names = []
    for source in sources:
        names.append(source.name)
        try:
            error = source.first_fault()
        except duckdb.Error:
            continue  # the file is unreadable; `otherwise` has the reason
        if error is not None:
            return error
    return DataError(f"cannot be read: {otherwise}", place=", ".join(names))


class Sources:
    """The sources of one part, perhaps none, each with its columns.

    Attributes:
        numbers: The columns that are read, of `value` and `time`.
        time_column: Column with the times; None if times are not read.
        asked: The columns of `where`.
        sources: Each source with its columns.
        skipping: Whether scans leave out lines that DuckDB refuses.

    Raises:
        DataError: A source lacks a column, or the sources have different ones.
    """

    def __init__(self, sources: Sequence[Source], options: IngestArguments) -> None:
        self.numbers, self.time_column = options.numbers, options.time
        self.asked = set(options.where or ())
        self.sources = [table_of(each, options) for each in sources]
        self.skipping = options.skip_bad_lines > 0 or any(source.comment for source in sources)

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL query of `Source.interactions` of all sources; it is valid once, on this connection."""
        nothing = (
            "SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time, true AS is_moment WHERE false"
        )
        queries = [f"({source.interactions(connection, self.skipping)})" for source in self.sources]
        return " UNION ALL ".join(queries) or nothing

    @property
    def short_names(self) -> list[str]:
        """Names of all sources, without folders."""
        return [source.name.rpartition("/")[2] for source in self.sources]

    @property
    def names(self) -> str:
        """Names of all sources, for messages."""
        return ", ".join(source.name for source in self.sources)

    @property
    def has_whole_items(self) -> bool:
        """Whether items are whole numbers by their type in every source."""
        return all(source.roles["item"] in source.integers for source in self.sources)

    def described(self) -> list[str]:
        """Describe in one line for each source how it is read: its format, its columns, the unread ones."""
        lines = []
        for name, source in zip(self.short_names, self.sources, strict=True):
            read = self.asked.union(source.roles.values())
            others = [column for column in source.columns if column not in read]
            roles = ", ".join(f"{role} = {column}" for role, column in source.roles.items())
            line = f"reading {name} as {source.kind}: {roles}"
            lines.append(line + (f"; not read: {listed(others)}" if others else ""))
        return lines

    def mistake(self, otherwise: str) -> DataError:
        """Make the error for the first row that breaks a rule, or else for this reason."""
        return mistake(self.sources, otherwise)

    def num_refused(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Number of lines that DuckDB left out in scans of this connection."""
        return sum(len(refusals(connection, source)) for source in self.sources)


def check_same_columns(parts: Iterable[Sources]) -> None:
    """Raise DataError if the roles of two sources are in columns of different names.

    Columns that the format gives have no names of their own.
    """
    named = [source for each in parts for source in each.sources if not source.has_own_columns]
    for source in named[1:]:
        first = named[0]
        DataError.require(
            source.roles == first.roles,
            f"must have the columns of {first.name}, {', '.join(first.roles.values())}",
            place=source.name,
            value=", ".join(source.roles.values()),
        )
