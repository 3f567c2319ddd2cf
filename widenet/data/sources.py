"""The sources of the interactions of one part, as one SQL query."""

import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from widenet.data.formats import memory, table
from widenet.data.formats.columns import Columns, check_time_format, choose_column, listed
from widenet.data.formats.csv import Csv
from widenet.data.formats.sessions import Sessions
from widenet.data.formats.source import Reading, Source, TextSource
from widenet.data.messages import Note
from widenet.errors import DataError, OptionError
from widenet.stores.fetch import fetched_sources
from widenet.stores.uri import check_known_scheme, is_uri

STANDARD_INPUT = "-"

_NOTHING = "SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time WHERE false"


@dataclass(frozen=True)
class Roles:
    """The columns of all sources, as they were named; None is guessed or absent.

    Attributes:
        user: Column with the user.
        item: Column with the item.
        value: Column with the value.
        time: Column with the time.
        needs_value: Whether to read a value even if its column was not named.
        time_formats: Formats of the times; without any, numbers and ISO times.

    Raises:
        OptionError: The format of times is invalid, or has no `time`.
    """

    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None
    needs_value: bool = False
    time_formats: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.time_formats and self.time is None:
            raise OptionError("`time_format` needs `time`.")
        for each in self.time_formats:
            check_time_format(each)

    @property
    def numbers(self) -> list[str]:
        """The columns that are read, of `value` and `time`."""
        return [*(["value"] if self.value or self.needs_value else []), *(["time"] if self.time else [])]

    @property
    def named(self) -> frozenset[str]:
        """The columns that were named."""
        return frozenset(name for name in (self.user, self.item, self.value, self.time) if name is not None)

    def columns(self, source: Source) -> Columns:
        """Choose the columns of one source.

        Raises:
            DataError: A column does not exist, or has two roles.
        """
        named = {"user": self.user, "item": self.item}
        named |= {role: getattr(self, role) for role in self.numbers}
        columns = {
            role: choose_column(source.name, source.columns, role, name, source.roles.get(role))
            for role, name in named.items()
        }
        for role, column in columns.items():
            first = next(each for each in columns if columns[each] == column)
            if first != role:
                raise DataError(f'{source.name}: column "{column}" cannot be both `{first}` and `{role}`.')
        return Columns(
            **columns, decimal=source.decimal, time_formats=self.time_formats, floats=source.floats
        )


class Sources:
    """The sources of one part, perhaps none, each with its columns.

    Attributes:
        numbers: The columns that are read, of `value` and `time`.
        read: Each source with its columns.

    Raises:
        DataError: A source lacks a column.
    """

    def __init__(self, sources: Sequence[Source], roles: Roles) -> None:
        self.numbers = roles.numbers
        self.read = [(source, roles.columns(source)) for source in sources]

    def check_column(self, column: str, users: Source | None) -> None:
        """Raise DataError unless every source has a column; the file of users, if any, lacks it."""
        for source, _ in self.read:
            if column not in source.columns:
                first, others = (source, "") if users is None else (users, f"; {source.name} lacks it too")
                known = f"{listed(first.columns)}{others}"
                raise DataError(f'{first.name}: column "{column}" does not exist; it has {known}.')

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL query of `user`, `item`, `value` and `time`, one row for each interaction.

        A cell that breaks a rule is NULL. The query is valid once, on this connection.
        """
        return (
            " UNION ALL ".join(
                f"({source.interactions(connection, columns)})" for source, columns in self.read
            )
            or _NOTHING
        )

    def categories(self, connection: duckdb.DuckDBPyConnection, column: str) -> str:
        """The SQL query of users, `name`, and the categories in a column, `category`; NULL if empty."""
        queries = []
        for source, columns in self.read:
            user, category = source.text(columns.user), source.text(column)
            queries.append(f"SELECT {user} AS name, {category} AS category FROM {source.scan(connection)}")
        return " UNION ALL ".join(queries)

    @property
    def first(self) -> str:
        """Name of the first source."""
        return self.read[0][0].name

    @property
    def short_names(self) -> list[str]:
        """Names of all sources, without folders."""
        return [source.name.rpartition("/")[2] for source, _ in self.read]

    @property
    def names(self) -> str:
        """Names of all sources, for messages."""
        return ", ".join(source.name for source, _ in self.read)

    @property
    def time_column(self) -> str | None:
        """Column with the times; None if times are not read."""
        return self.read[0][1].time if self.read else None

    @property
    def may_lack_items(self) -> bool:
        """Whether a row may lack an item, because it stands for a user without items."""
        return all(source.empty_users for source, _ in self.read)

    @property
    def has_whole_items(self) -> bool:
        """Whether items are whole numbers by their type in every source."""
        return all(columns.item in source.integers for source, columns in self.read)

    def described(self, elsewhere: Collection[str] = ()) -> list[str]:
        """Describe in one line for each source how it is read: its format, its columns, and the unread ones.

        Args:
            elsewhere: Columns that are read elsewhere.
        """
        lines = []
        for name, (source, columns) in zip(self.short_names, self.read, strict=True):
            read = {role: column for role, (column, _) in columns.expressions().items()}
            others = [column for column in source.columns if column not in {*read.values(), *elsewhere}]
            line = f"reading {name} as {source.kind}: " + ", ".join(
                f"{role} = {column}" for role, column in read.items()
            )
            lines.append(line + (f"; not read: {listed(others)}" if others else ""))
        return lines

    def without_interactions(self) -> DataError:
        """Make the error for sources that have rows of no interactions, or no rows."""
        source, _ = self.read[0]
        read = f"read as {source.kind}, it has none"
        return DataError(f"{source.name}: must hold interactions; {read}.")

    def mistake(self, otherwise: str) -> DataError:
        """Make the error for the first place that breaks a rule, or else for this reason."""
        return mistake(self.read, otherwise)

    def skip_bad_lines(self, most: int, folder: Path, say: Callable[[str], None]) -> int:
        """Replace the sources by copies without the lines that break a rule.

        Args:
            most: Largest number of lines to skip.
            folder: Folder for the copies.
            say: Called with a sentence if lines were skipped.

        Returns:
            The number of skipped lines.

        Raises:
            DataError: More lines are bad; the message has the first one, and where reading stopped.
        """
        first, num_skipped = None, 0
        for place, (source, columns) in enumerate(self.read):
            if not isinstance(source, TextSource):
                continue
            numbers = set()
            for number, rule in source.bad_lines(columns):
                numbers.add(number)
                first = first or f"{source.name}: {source.row} {number}: {rule}"
                if num_skipped + len(numbers) > most:
                    end = f"{source.row} {number:,}" + f" of {source.name}" * (place > 0)
                    bad = f"more bad lines than `skip_bad_lines={most}` allows"
                    raise DataError(f"{first} Reading stopped at {end}, after {bad}.")
            if numbers:
                num_skipped += len(numbers)
                copy = source.file.without(numbers, folder / f"{folder.name}-{place}")
                self.read[place] = (replace(source, file=copy), columns)
        if first:
            say(Note(f"skipped {num_skipped:,} bad line{'s' * (num_skipped > 1)}; the first: {first}"))
        return num_skipped


def opened(inputs: Sequence[Any], reading: Reading, folder: Path) -> list[Source]:
    """Open sources: paths, patterns of paths, "-" for standard input, and tables in memory.

    Args:
        inputs: The sources.
        reading: How to read files.
        folder: Folder for a copy of standard input.

    Raises:
        DataError: A file is missing, or of another format.
        OptionError: A source is none of these.
    """
    sources: list[Source] = []
    first_line = 1
    for each in inputs:
        for place, name in _places(
            each, folder, f"`{reading.prefix[:-1]}`" if reading.prefix else "a source"
        ):
            if isinstance(place, Path):
                source = table.opened(place, replace(reading, first_line=first_line), name)
                source = source.prepared(folder) if isinstance(source, TextSource) else source
            else:
                source = memory.opened(place, name)
            if isinstance(source, Sessions):
                first_line += source.num_lines
            sources.append(source)
    return sources


def opened_one(value: Any, reading: Reading, folder: Path) -> Source:
    """Open a single source; raises as `opened` does."""
    source, *others = opened([value], reading, folder)
    if others:
        raise OptionError(f"{value} must be one file; it matches {len(others) + 1:,}.")
    check_csv_options(reading, [source])
    return source


def check_csv_options(reading: Reading, sources: Sequence[Source]) -> None:
    """Raise OptionError if an option for CSV was given, but no source is CSV."""
    if reading.given_csv_options and not any(isinstance(source, Csv) for source in sources):
        raise OptionError(f"{reading.given_csv_options[0]} is for CSV, and no source is CSV.")


def check_skipping(most: int, sources: Sequence[Source]) -> None:
    """Raise OptionError if bad lines may be skipped, but no source has lines."""
    if most and not any(isinstance(source, TextSource) for source in sources):
        raise OptionError("`skip_bad_lines` is for lines of text, and no source has lines.")


def _places(source: Any, folder: Path, option: str) -> list[tuple[Any, str]]:
    """List the paths or the table of a source, each with its name in messages."""
    if memory.is_in_memory(source):
        return [(source, "the table" if option == "a source" else f"the table of {option[1:-1]}")]
    if not isinstance(source, str | Path):
        kinds = (
            "a path, a pandas, Polars or Arrow table, a SciPy matrix, a dictionary of columns, a list of"
            " tuples of 2 to 4 entries, or arrays of users and items"
        )
        raise OptionError(f"{option} must be {kinds}; got {type(source).__name__}.")
    if str(source) == STANDARD_INPUT:
        return [(_copy_standard_input(folder), "standard input")]
    if is_uri(source):
        return [(copy, str(uri)) for copy, uri in fetched_sources(source)]
    check_known_scheme(option, source)
    return [(path, str(path)) for path in matching_paths(Path(source))]


def matching_paths(path: Path) -> list[Path]:
    """Return the path itself if it exists or is not a pattern; otherwise the paths that match it.

    Raises:
        DataError: No path matches.
    """
    if path.exists() or not set(str(path)) & set("*?["):
        return [path]
    root = Path(path.anchor)
    matches = sorted(root.glob(str(path.relative_to(root))))
    if not matches:
        raise DataError(f"{path}: no file matches the pattern.")
    return matches


def _copy_standard_input(folder: Path) -> Path:
    """Copy standard input to a file, because sources are read twice."""
    path = folder / "standard-input"
    if path.exists():
        raise OptionError('"-" is standard input, which can be read only once; got it twice.')
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def mistake(read: Sequence[tuple[Source, Columns]], otherwise: str) -> DataError:
    """Make the error for the first place in some sources that breaks a rule, or else for this reason."""
    for source, columns in read:
        try:
            sentence = source.first_mistake(columns)
        except duckdb.Error:
            sentence = None  # the file is unreadable; `otherwise` has the reason
        if sentence:
            return DataError(sentence)
    names = ", ".join(source.name for source, _ in read)
    return DataError(f"{names}: cannot be read: {otherwise}.")
