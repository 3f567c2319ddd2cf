"""The sources that the interactions of one part are read from, as one SQL query."""

import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from widenet.data.formats import memory, table
from widenet.data.formats.columns import Columns, check_time_format, chosen, listed
from widenet.data.formats.csv import Csv
from widenet.data.formats.guesses import LISTS
from widenet.data.formats.sessions import Sessions
from widenet.data.formats.source import Reading, Source, TextSource
from widenet.errors import DataError, OptionError

STANDARD_INPUT = "-"

_NOTHING = "SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time WHERE false"


@dataclass(frozen=True)
class Roles:
    """The columns of all sources that were named; None is guessed or absent.

    Raises OptionError for a format of times that is none.

    needs_value: whether a value is read although its column was not named. time_format: how times are
    written.
    """

    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None
    needs_value: bool = False
    time_format: str | None = None

    def __post_init__(self) -> None:
        if self.time_format is not None:
            if self.time is None:
                raise OptionError("`time_format` needs `time`. Name the time's column.")
            check_time_format(self.time_format)

    @property
    def numbers(self) -> list[str]:
        """Those of `value` and `time` that are read."""
        return [*(["value"] if self.value or self.needs_value else []), *(["time"] if self.time else [])]

    @property
    def named(self) -> frozenset[str]:
        """The names that were given."""
        return frozenset(name for name in (self.user, self.item, self.value, self.time) if name is not None)

    def columns(self, source: Source) -> Columns:
        """The columns of one source; raises DataError for one that it does not have, or that is taken
        twice.
        """
        asked = {"user": self.user, "item": self.item}
        asked |= {role: getattr(self, role) for role in self.numbers}
        found = {
            role: chosen(source.name, source.columns, role, name, source.roles.get(role), source.doubt)
            for role, name in asked.items()
        }
        for role, column in found.items():
            first = next(each for each in found if found[each] == column)
            if first != role:
                raise DataError(
                    f'{source.name}: column "{column}" cannot be both {first} and {role}. Name another with'
                    f" `{role}`."
                )
        self._check_guesses(source, found)
        return Columns(**found, decimal=source.decimal, time_format=self.time_format, floats=source.floats)

    def _check_guesses(self, source: Source, found: Mapping[str, str]) -> None:
        """Raise DataError where a column that was guessed to be the user or the item looks like a time or
        like lists.
        """
        for role, named in (("user", self.user), ("item", self.item)):
            column = found[role]
            if named is not None or column not in source.suspects:
                continue
            kind = source.suspects[column]
            others = [each for each in source.columns if each not in source.suspects]
            remedy = f"Say `{role}={column!r}` if it is the {role}"
            if len(others) > 1 and kind != LISTS:
                remedy = (
                    f"Say `user={others[0]!r}` `item={others[1]!r}` `time={column!r}`, or"
                    f" `{role}={column!r}` if it is the {role}"
                )
            raise DataError(
                f"{source.name}: column {column} looks like {kind}, and would become the {role}. {remedy}."
            )


class Sources:
    """The sources of one part, perhaps none, each with its columns; raises DataError for one that lacks a
    column.
    """

    def __init__(self, sources: Sequence[Source], roles: Roles) -> None:
        self.numbers = roles.numbers
        self._read = [(source, roles.columns(source)) for source in sources]

    def check_column(self, column: str, users: Source | None) -> None:
        """Raise DataError unless every source has a column that the file of users, if any, lacks."""
        for source, _ in self._read:
            if column not in source.columns:
                first, others = (source, "") if users is None else (users, f"; {source.name} lacks it too")
                raise DataError(
                    f'{first.name}: column "{column}" does not exist; it has'
                    f" {listed(first.columns)}{others}. Correct its name."
                )

    def query(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL query of `user`, `item`, `value`, `time`, one row an interaction; NULL where a cell breaks
        a rule.

        It may be asked once, by this connection.
        """
        return (
            " UNION ALL ".join(
                f"({source.interactions(connection, columns)})" for source, columns in self._read
            )
            or _NOTHING
        )

    def categories(self, connection: duckdb.DuckDBPyConnection, column: str) -> str:
        """The SQL query of users, `name`, and what a column holds, `category`, NULL where it is empty."""
        queries = []
        for source, columns in self._read:
            user, category = source.text(columns.user), source.text(column)
            queries.append(f"SELECT {user} AS name, {category} AS category FROM {source.scan(connection)}")
        return " UNION ALL ".join(queries)

    @property
    def first(self) -> str:
        """The name of the first source."""
        return self._read[0][0].name

    @property
    def short_names(self) -> list[str]:
        """The names of all sources, without folders."""
        return [source.name.rpartition("/")[2] for source, _ in self._read]

    @property
    def names(self) -> str:
        """The sources, for a message."""
        return ", ".join(source.name for source, _ in self._read)

    @property
    def may_lack_items(self) -> bool:
        """Whether a row without an item is right: it names a user who has none."""
        return all(source.empty_users for source, _ in self._read)

    def described(self, elsewhere: Collection[str] = ()) -> list[str]:
        """A line for each source: how it is read, which column is what, and which are not read, here or
        elsewhere.
        """
        lines = []
        for name, (source, columns) in zip(self.short_names, self._read, strict=True):
            read = {role: column for role, (column, _) in columns.expressions().items()}
            others = [column for column in source.columns if column not in {*read.values(), *elsewhere}]
            line = f"reading {name} as {source.kind}: " + ", ".join(
                f"{role} = {column}" for role, column in read.items()
            )
            lines.append(line + (f"; not read: {listed(others)}" if others else ""))
        return lines

    def mistake(self, otherwise: str) -> DataError:
        """The first place that breaks a rule, or else this reason."""
        return mistake(self._read, otherwise)

    def skip_bad_lines(self, most: int, folder: Path, say: Callable[[str], None]) -> int:
        """Go on without the lines that break a rule, from copies in a folder; gives their number.

        Raises DataError with the first one where there are more than `most`.
        """
        first, num_skipped = None, 0
        for place, (source, columns) in enumerate(self._read):
            if not isinstance(source, TextSource):
                continue
            numbers = set()
            for number, rule in source.bad_lines(columns):
                numbers.add(number)
                first = first or f"{source.name}: {source.row} {number}: {rule}"
                if num_skipped + len(numbers) > most:
                    raise DataError(
                        f"{first} More than {most:,} {'line is' if most == 1 else 'lines are'} bad: mend"
                        " them, or raise `skip_bad_lines`."
                    )
            if numbers:
                num_skipped += len(numbers)
                copy = source.file.without(numbers, folder / f"{folder.name}-{place}")
                self._read[place] = (replace(source, file=copy), columns)
        if first:
            say(f"skipped {num_skipped:,} bad line{'s' * (num_skipped > 1)}; the first: {first}")
        return num_skipped


def opened(given: Sequence[Any], reading: Reading, folder: Path) -> list[Source]:
    """The sources that are given: paths, patterns of paths, "-" for standard input (kept in a folder
    meanwhile), and tables in memory.

    Raises DataError for a file that is missing or of another format, OptionError for something that is none
    of these.
    """
    sources: list[Source] = []
    first_line = 1
    for each in given:
        for place, name in _places(each, folder, f"`{reading.whose[:-1]}`" if reading.whose else "SOURCE"):
            if isinstance(place, Path):
                source = table.opened(place, replace(reading, first_line=first_line), name)
                source = source.prepared(folder) if isinstance(source, TextSource) else source
            else:
                source = memory.opened(place, name)
            if isinstance(source, Sessions):
                first_line += source.num_lines
            sources.append(source)
    return sources


def opened_one(given: Any, reading: Reading, folder: Path) -> Source:
    """The one source that is given; raises as `opened` does."""
    source, *others = opened([given], reading, folder)
    if others:
        raise OptionError(f"{given} must mean one file; it means {len(others) + 1:,}. Name one.")
    check_said(reading, [source])
    return source


def check_said(reading: Reading, sources: Sequence[Source]) -> None:
    """Raise OptionError where something is said of CSV, and none of the sources is."""
    if reading.said_of_csv and not any(isinstance(source, Csv) for source in sources):
        kinds = " and ".join(dict.fromkeys(source.kind for source in sources))
        remedy = f"Remove it, or say {reading.option('format', 'csv')}."
        raise OptionError(f"{reading.said_of_csv[0]} is for CSV; what is read is {kinds}. {remedy}")


def check_skipping(most: int, sources: Sequence[Source]) -> None:
    """Raise OptionError where bad lines may be left out, and no source has lines."""
    if most and not any(isinstance(source, TextSource) for source in sources):
        kinds = " and ".join(dict.fromkeys(source.kind for source in sources))
        raise OptionError(
            f"`skip_bad_lines` is for lines of text; what is read is {kinds}. Remove it, and drop such rows"
            " in the source."
        )


def _places(given: Any, folder: Path, option: str) -> list[tuple[Any, str]]:
    """The path or the table that an option gives, or the paths that a pattern means, each with what
    messages call it.
    """
    if memory.is_table(given):
        return [(given, "the table")]
    if not isinstance(given, str | Path):
        kinds = (
            "a path, a pandas, Polars or Arrow table, a SciPy matrix, a dictionary of columns, tuples, or"
            " arrays of users and items"
        )
        raise OptionError(f"{option} must be {kinds}; got {type(given).__name__}.")
    if str(given) == STANDARD_INPUT:
        return [(_spooled(folder), "standard input")]
    return [(path, str(path)) for path in meant(Path(given))]


def meant(path: Path) -> list[Path]:
    """The path itself if it is there or no pattern, or else the paths that the pattern means; raises
    DataError where it means none.
    """
    if path.exists() or not set(str(path)) & set("*?["):
        return [path]
    root = Path(path.anchor)
    matches = sorted(root.glob(str(path.relative_to(root))))
    if not matches:
        raise DataError(f"{path}: the pattern means no file. Check it, or name the files.")
    return matches


def _spooled(folder: Path) -> Path:
    """Standard input as a file, for sources are read twice."""
    path = folder / "standard-input"
    if path.exists():
        raise OptionError('"-" is standard input, which can be read once; got it twice. Name it once.')
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def mistake(read: Sequence[tuple[Source, Columns]], otherwise: str) -> DataError:
    """The first place in some sources that breaks a rule, or else this reason."""
    for source, columns in read:
        try:
            found = source.first_mistake(columns)
        except duckdb.Error:
            found = None  # the file is unreadable, which `otherwise` says
        if found:
            return DataError(found)
    names = ", ".join(source.name for source, _ in read)
    return DataError(f"{names}: cannot be read: {otherwise}. Check the file, or name its `format`.")
