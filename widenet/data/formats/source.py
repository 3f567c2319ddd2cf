"""What every kind of source gives: its columns, an SQL table of them, and its mistakes."""

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
    """One place that interactions are read from.

    name: what messages call it. kind: its format, in words. columns: their names.
    """

    name: str
    kind: str
    columns: list[str]
    roles: Mapping[str, str] = field(default_factory=dict)
    """The columns of roles that need no name, where columns have no names of their own."""
    empty_users: bool = False
    """Whether a row without an item is right: it names a user who has none."""

    suspects: Mapping[str, str] = field(default_factory=dict)
    """Columns that are hardly a user or an item, unless they are named, and what they look like."""

    doubt: str = ""
    """What else may help where a column is not found: the end of a sentence."""

    decimal: str = "."
    """What stands before the decimals of its numbers."""

    floats: frozenset[str] = frozenset()
    """Columns of floating-point numbers."""

    def text(self, column: str, table: str = "") -> str:
        """The SQL of a column as ids and categories are kept: as text, NULL where it is empty. table: the
        SQL name of a table before it.
        """
        return f"nullif({sql.text(table + sql.name(column), column in self.floats)}, '')"

    @abstractmethod
    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all columns, for one query of this connection."""

    def interactions(self, connection: duckdb.DuckDBPyConnection, columns: Columns) -> str:
        """The SQL query of `Columns.interactions`; as `scan`, for one query of this connection."""
        return columns.interactions(self.scan(connection))

    @abstractmethod
    def first_mistake(self, columns: Columns) -> str | None:
        """The first place that breaks a rule, as a sentence; None when there is none."""


@dataclass
class TextSource(Source):
    """A source in lines of text; `bad_lines` can be left out of it."""

    file: TextFile = field(kw_only=True)
    row: str = field(default="line", kw_only=True)
    """What messages call a line of the file as it is read."""

    def prepared(self, folder: Path) -> Self:
        """The source as it is read: the file itself, or a copy of it in a folder, where DuckDB cannot read
        the file as it is.
        """
        return replace(self, file=self.file.with_even_ends(folder))

    @abstractmethod
    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """The numbers of the lines that break a rule, ascending, and the rule as a sentence."""

    def first_mistake(self, columns: Columns) -> str | None:
        """The first line that breaks a rule, as a sentence; None when there is none."""
        return next(
            (f"{self.name}: {self.row} {number}: {rule}" for number, rule in self.bad_lines(columns)), None
        )


@dataclass(frozen=True)
class Reading:
    """How files are read, as far as it was said; None is guessed.

    Raises OptionError for a delimiter or a decimal sign that is none.

    format: for all files. delimiter, has_header, columns, decimal: of CSV. named: columns that options name,
    which a header must hold.
    first_line: the number of the first line, which names the user of a session.
    of_sequences: whether each user has a sequence, as a line of words may be.
    whose: what begins the names of the options that say it: "" for those of interactions, "users_",
    "titles_".
    """

    format: str | None = None
    delimiter: str | None = None
    has_header: bool | None = None
    columns: tuple[str, ...] | None = None
    named: frozenset[str] = frozenset()
    first_line: int = 1
    of_sequences: bool = False
    whose: str = ""
    decimal: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and (
            not 1 <= len(self.delimiter.encode()) <= 4 or set(self.delimiter) & set('"\r\n')
        ):
            rule = "must be 1 to 4 bytes without quotes and ends of lines, or tab or space"
            raise OptionError(f"{self.option('delimiter')} {rule}; got {self.delimiter!r}.")
        if self.decimal not in (None, ".", ","):
            raise OptionError(f"{self.option('decimal')} must be a point or a comma; got {self.decimal!r}.")

    @property
    def said(self) -> list[str]:
        """The options that were given."""
        return ([] if self.format is None else [self.option("format")]) + self.said_of_csv

    @property
    def said_of_csv(self) -> list[str]:
        """Those of them that only CSV has."""
        given = {
            "delimiter": self.delimiter,
            "header": self.has_header,
            "columns": self.columns,
            "decimal": self.decimal,
        }
        return [self.option(name) for name, value in given.items() if value is not None]

    def option(self, name: str, value: object = None) -> str:
        """An option of these files, with a value or without, as messages name it."""
        return f"`{self.whose}{name}`" if value is None else f"`{self.whose}{name}={value!r}`"


@dataclass(frozen=True)
class Format:
    """What widenet knows about a file format: the `FORMAT` of its module.

    opened: returns the source in a file, from its path, its name in messages and what was said about it;
        raises DataError when the file is not of this format.
    """

    opened: Callable[[Path, str, Reading], Source]
    suffixes: tuple[str, ...]
    """The ends of such files' names."""
    is_text: bool = True
    """Whether it is text, which may be compressed too."""
    begins: Callable[[bytes], bool] | None = None
    """Whether the first 64 bytes of a file show that it is of this format, whatever its suffix; None where
    they cannot.
    """
