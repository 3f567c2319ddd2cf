"""The base of all kinds of sources: a name, columns, an SQL table, and the first mistake."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns
from widenet.data.formats.text import TextFile
from widenet.errors import OptionError


@dataclass
class Source(ABC):
    """A place to read interactions from.

    Attributes:
        name: Name in messages.
        kind: Description of the format.
        columns: Names of the columns.
    """

    name: str
    kind: str
    columns: list[str]
    roles: Mapping[str, str] = field(default_factory=dict)
    """Columns of roles by position, if the columns have no names of their own."""
    empty_users: bool = False
    """Whether a row may lack an item, because it stands for a user without items."""

    decimal: str = "."
    """Decimal separator of its numbers."""

    floats: frozenset[str] = frozenset()
    """Columns of floating-point numbers."""

    integers: frozenset[str] = frozenset()
    """Columns whose type is a whole number; texts have none."""

    def text(self, column: str, table: str = "") -> str:
        """The SQL of a column as text, in the form of ids and categories; NULL for an empty cell.

        Args:
            column: Name of the column.
            table: SQL name of the table, with a point at its end; "" for none.
        """
        return f"nullif({sql.text(table + sql.name(column), column in self.floats)}, '')"

    @abstractmethod
    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns; it is valid for one query on this connection."""

    def cells(self, connection: duckdb.DuckDBPyConnection) -> str:
        """As `typed_rows`, with every cell as text, in the form of ids; NULL for an empty cell."""
        texts = ", ".join(f"{self.text(column)} AS {sql.name(column)}" for column in self.columns)
        return f"(SELECT {texts} FROM {self.typed_rows(connection)})"

    def typed_rows(self, connection: duckdb.DuckDBPyConnection) -> str:
        """As `scan`, with one row for each of the source, whose lists stay lists."""
        return self.scan(connection)

    def interactions(self, connection: duckdb.DuckDBPyConnection, columns: Columns) -> str:
        """The SQL query of `Columns.interactions`; it is valid for one query on this connection."""
        return columns.interactions(self.scan(connection))

    @abstractmethod
    def first_mistake(self, columns: Columns) -> str | None:
        """Describe the first place that breaks a rule, as a sentence; None if there is none."""


@dataclass
class TextSource(Source):
    """A source of text lines; the lines that `bad_lines` yields can be skipped."""

    file: TextFile = field(kw_only=True)
    row: str = field(default="line", kw_only=True)
    """Word for a line of the file in messages."""

    def prepared(self, folder: Path) -> Self:
        """The source to read: the file itself, or a copy of it.

        Args:
            folder: Folder for a copy, which is made if DuckDB cannot read the file as it is.
        """
        return replace(self, file=self.file.with_even_ends(folder))

    @abstractmethod
    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Yield the numbers of the lines that break a rule, ascending, and the rule as a sentence."""

    def first_mistake(self, columns: Columns) -> str | None:
        """Describe the first line that breaks a rule, as a sentence; None if there is none."""
        return next(
            (f"{self.name}: {self.row} {number}: {rule}" for number, rule in self.bad_lines(columns)), None
        )


@dataclass(frozen=True)
class Reading:
    """Options that say how to read files; None means guessed.

    Attributes:
        format: Name of the format.
        delimiter: Column delimiter of CSV.
        has_header: Whether line 1 of CSV names the columns.
        columns: Column names of CSV without a header.
        named: Columns that other options name; a line that holds one of them is a header.
        first_line: Number of the first line, which is the id of a session's user.
        prefix: Prefix of these options: "" for interactions, "users_" or "titles_".
        decimal: Decimal separator of CSV.

    Raises:
        OptionError: The delimiter or the decimal separator is invalid.
    """

    format: str | None = None
    delimiter: str | None = None
    has_header: bool | None = None
    columns: tuple[str, ...] | None = None
    named: frozenset[str] = frozenset()
    first_line: int = 1
    prefix: str = ""
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            not 1 <= len(self.delimiter.encode()) <= 4 or set(self.delimiter) & set('"\r\n')
        ):
            rule = "must be 1 to 4 bytes without quotes and line ends, or tab or space"
            raise OptionError(f"{self.option('delimiter')} {rule}; got {self.delimiter!r}.")
        if self.decimal not in (None, ".", ","):
            raise OptionError(f"{self.option('decimal')} must be a point or a comma; got {self.decimal!r}.")

    @property
    def given_options(self) -> list[str]:
        """Names of the options that were given."""
        return ([] if self.format is None else [self.option("format")]) + self.given_csv_options

    @property
    def given_csv_options(self) -> list[str]:
        """Names of the options that were given and are for CSV alone."""
        options = {
            "delimiter": self.delimiter,
            "header": self.has_header,
            "columns": self.columns,
            "decimal": self.decimal,
        }
        return [self.option(name) for name, value in options.items() if value is not None]

    def option(self, name: str) -> str:
        """Name an option in a message."""
        return f"`{self.prefix}{name}`"


@dataclass(frozen=True)
class Format:
    """A file format; each module of a format defines one as `FORMAT`.

    Attributes:
        opened: Opens a file as a source, from its path, its name in messages and its options. Raises
            DataError if the file is not of this format.
    """

    opened: Callable[[Path, str, Reading], Source]
    suffixes: tuple[str, ...]
    """Suffixes of the file names."""
    is_text: bool = True
    """Whether files are text, which may be compressed."""
    begins: Callable[[bytes], bool] | None = None
    """Recognizes the format by the first 64 bytes of a file, whatever its suffix; None if it cannot."""
