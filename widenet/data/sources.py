"""The files that the interactions of one part are read from, as one SQL query."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from widenet.data.formats.columns import Columns, chosen
from widenet.data.formats.table import Format, format_of
from widenet.errors import DataError

_NOTHING = "SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time WHERE false"


@dataclass(frozen=True)
class Roles:
    """The columns of all sources that were named; None is guessed or absent.

    needs_value: whether a value is read although its column was not named.
    """

    user: str | None = None
    item: str | None = None
    value: str | None = None
    time: str | None = None
    needs_value: bool = False

    @property
    def numbers(self) -> list[str]:
        """Those of `value` and `time` that are read."""
        return [*(["value"] if self.value or self.needs_value else []), *(["time"] if self.time else [])]

    def columns(self, path: Path, known: Format) -> Columns:
        """The columns of one file; raises DataError for one that it does not have."""
        found = known.column_names(path)
        return Columns(
            user=chosen(path, found, "user", self.user),
            item=chosen(path, found, "item", self.item),
            value=chosen(path, found, "value", self.value) if "value" in self.numbers else None,
            time=chosen(path, found, "time", self.time) if self.time is not None else None,
        )


class Sources:
    """The files of one part, perhaps none; raises DataError for a file that is missing or lacks a column."""

    def __init__(self, paths: Sequence[Path], named_format: str | None, roles: Roles) -> None:
        self.numbers = roles.numbers
        self._read = [(path, known := format_of(path, named_format), roles.columns(path, known)) for path in paths]

    @property
    def query(self) -> str:
        """The SQL query of `user`, `item`, `value`, `time`, one row an interaction; NULL where a cell breaks a rule."""
        return " UNION ALL ".join(f"({columns.interactions(known.scan(path))})" for path, known, columns in self._read) or _NOTHING

    @property
    def first(self) -> Path:
        """The first file."""
        return self._read[0][0]

    @property
    def names(self) -> str:
        """The files, for a message."""
        return _names(self._read)

    @property
    def may_lack_items(self) -> bool:
        """Whether a row without an item is right: it names a user who has none."""
        return all(known.EMPTY_USERS for _, known, _ in self._read)

    def mistake(self, otherwise: str) -> DataError:
        """The first place that breaks a rule, or else this reason."""
        return mistake(self._read, otherwise)


def mistake(read: Sequence[tuple[Path, Format, Columns]], otherwise: str) -> DataError:
    """The first place in some files that breaks a rule, or else this reason."""
    for path, known, columns in read:
        if found := known.first_mistake(path, columns):
            return DataError(found)
    return DataError(f"{_names(read)}: cannot be read: {otherwise}. Check the file, or name its --format.")


def _names(read: Sequence[tuple[Path, Format, Columns]]) -> str:
    return ", ".join(str(path) for path, _, _ in read)
