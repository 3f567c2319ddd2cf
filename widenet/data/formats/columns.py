"""Finds the columns of a source with the user, the item, the value and the time, and checks their cells."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.text import NO_NUL
from widenet.errors import DataError, OptionError, nearest

_ITEM_NAMES = (
    "item", "itemid", "bookid", "movieid", "productid", "product", "artistid", "trackid", "songid", "asin",
    "isbn", "iid", "sku", "parentasin", "stockcode", "articleid", "ean", "upc", "gtin", "videoid",
    "contentid", "newsid", "businessid", "placeid", "venueid", "locationid", "poiid", "gameid", "appid",
    "recipeid", "animeid", "courseid", "hotelid", "listingid",
)  # fmt: skip
_USER_NAMES = (
    "user", "userid", "customerid", "customer", "reviewerid", "sessionid", "session", "uid", "visitorid",
    "visitor", "clientid", "client", "memberid", "accountid", "subscriberid", "buyerid", "profileid",
    "playerid", "householdid", "fullvisitorid", "userpseudoid",
)  # fmt: skip
OBVIOUS = {
    "user": _USER_NAMES,
    "users-id": (*_USER_NAMES, "id"),
    "item": _ITEM_NAMES,
    "value": ("value", "rating", "score", "stars", "overall"),
    "title-id": ("id", *_ITEM_NAMES),
    "title": ("title", "name"),
    "items-id": ("id", *_ITEM_NAMES),
    "items-title": ("title", "name"),
}
"""Names by which a column is recognized, most obvious first; compared as `plain` writes them."""
_WORDS = {"users-id": "id of a user", "title-id": "id of an item", "items-id": "id of an item"}
"""Roles in words, for messages."""


_ISO = re.compile(
    r"(?P<Y>[12][0-9]{3})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})([T"
    r" ](?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?"
)
_DIGITS = {"Y": "[12][0-9]{3}", **dict.fromkeys("mdHMS", "[0-9]{2}")}
"""Texts that DuckDB surely accepts for a specifier. It accepts more, but asking it takes milliseconds."""

RULES = {
    "user": "must not be empty",
    "item": "must not be empty",
    "value": "must be a number",
    "time": "must be a number or a timestamp",
}
"""The rule for the cells of each role."""


@dataclass(frozen=True)
class Columns:
    """The column of each role; None if the source has none, or it is not read.

    Attributes:
        user: Column with the user.
        item: Column with the item.
        value: Column with the value.
        time: Column with the time.
        decimal: Decimal separator.
        time_formats: Formats of the times, for DuckDB's strptime; without any, numbers and ISO times.
        floats: Columns of floating-point numbers; their ids are written without ".0".
    """

    user: str
    item: str
    value: str | None = None
    time: str | None = None
    decimal: str = "."
    time_formats: tuple[str, ...] = ()
    floats: frozenset[str] = frozenset()

    def expressions(self) -> dict[str, tuple[str, str]]:
        """The column and the SQL of its value, for each role that has a column.

        The SQL gives NULL for a cell that breaks the rule of its role.
        """
        read = {
            role: (column, f"nullif({sql.text(sql.name(column), column in self.floats)}, '')")
            for role, column in (("user", self.user), ("item", self.item))
        }
        if self.value:
            read["value"] = (self.value, sql.number(sql.name(self.value), self.decimal))
        if self.time:
            read["time"] = (self.time, sql.seconds(sql.name(self.time), self.decimal, self.time_formats))
        return read

    def interactions(self, table: str) -> str:
        """The SQL query of `user`, `item`, `value` and `time` from an SQL table.

        A missing value is 1; a missing time is 0.
        """
        read = {"value": ("", "1.0"), "time": ("", "0.0")} | self.expressions()
        listed = ", ".join(f"{expression} AS {sql.name(role)}" for role, (_, expression) in read.items())
        return f"SELECT {listed} FROM {table}"


def listed(names: Sequence[str]) -> str:
    """List names in a message: the first 12, long ones shortened, those with outer spaces in quotes."""
    shown = [name if len(name) <= 30 else f"{name[:29]}…" for name in names[:12]]
    shown = [name if name == name.strip() else f'"{name}"' for name in shown]
    return ", ".join([*shown, *([f"and {len(names) - 12} more"] if len(names) > 12 else [])])


def plain(column: str) -> str:
    """A column's name for comparisons: in lower case, without "_", "-" and spaces."""
    return column.lower().replace("_", "").replace("-", "").replace(" ", "")


def choose_column(
    place: str,
    columns: Sequence[str],
    role: str,
    named: str | None,
    otherwise: str | None = None,
) -> str:
    """Choose the column of a role: the named one, else the obvious one, else `otherwise`.

    Spaces at the ends of a column's name may be left out.

    Args:
        place: Name of the source in messages.
        columns: Columns of the source.
        role: The role; a key of `OBVIOUS`.
        named: Column that the user named; None if none.
        otherwise: Column to use if none is obvious.

    Raises:
        DataError: There is no such column; the message lists the columns of the source.
    """
    option = role.replace("-", "_")
    if named is not None:
        same = [column for column in columns if column.strip() == named]
        if named not in columns and len(same) == 1:
            return same[0]
        if named not in columns:
            rule = f'column "{named}" of `{option}` does not exist; it has {listed(columns)}'
            raise DataError(f"{place}: {rule}.{nearest(named, columns)}")
        return named
    known = {plain(column): column for column in reversed(columns)}
    for name in OBVIOUS[role]:
        if name in known:
            return known[name]
    if otherwise is not None:
        return otherwise
    role = _WORDS.get(role, role)
    raise DataError(
        f"{place}: no column is obviously the {role}; it has {listed(columns)}. Name one with `{option}`."
    )


def broken(column: str, role: str, text: str | None, columns: Columns) -> str:
    """Describe a cell that breaks the rule of its role, as the end of a sentence.

    Args:
        column: Name of the column.
        role: Its role.
        text: The cell.
        columns: The column of each role.
    """
    got = f'; got "{text}"' if text else ""
    rule = RULES[role]
    if role == "value" and text:
        number = _number(text, columns.decimal)
        if number is not None and abs(number) > sql.LARGEST_FLOAT32:
            rule = "must lie between -3.4e38 and 3.4e38, as a float32 does"
    if role == "time" and columns.time_formats:
        formats = " or ".join(f"`time_format={each!r}`" for each in columns.time_formats)
        rule = f"must be a time as {formats} has it"
    return f'column "{column}" {rule}{got}.'


def check_time_format(time_format: str) -> None:
    """Raise OptionError for a format that DuckDB does not accept."""
    try:
        with duckdb.connect() as database:
            database.execute(f"SELECT epoch(try_strptime('', {sql.literal(time_format)}))")
    except duckdb.Error:
        rule = "must be a format of strptime, such as '%d/%m/%Y' or '%d.%m.%Y %H:%M:%S'"
        raise OptionError(f"`time_format` {rule}; got {time_format!r}.") from None
    if "%" not in time_format:
        raise OptionError(f"`time_format` must hold specifiers such as %d, %m and %Y; got {time_format!r}.")


def first_broken(cells: Mapping[str, str], columns: Columns) -> str | None:
    """Describe the first cell of a row that breaks the rule of its role; None if there is none.

    Args:
        cells: Texts of the row, by column.
        columns: The column of each role.
    """
    holds: dict[str, Callable[[str], bool]] = {
        "user": bool,
        "item": bool,
        "value": lambda text: is_number(text, columns.decimal),
        "time": lambda text: _is_time(text, columns.decimal, columns.time_formats),
    }
    for role, (name, _) in columns.expressions().items():
        if not holds[role](cells[name]):
            return broken(name, role, cells[name], columns)
        if "\0" in cells[name]:
            return f'column "{name}" {NO_NUL}'
    return None


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text is a finite number that a float32 can hold."""
    number = _number(text, decimal)
    return number is not None and abs(number) <= sql.LARGEST_FLOAT32


def _is_time(text: str, decimal: str, time_formats: Sequence[str]) -> bool:
    if not time_formats and _number(text, decimal) is not None:
        return True
    patterns = [*map(_pattern_of, time_formats)] or [_ISO]
    if any(pattern is not None and _is_real_time(pattern.fullmatch(text)) for pattern in patterns):
        return True
    read = sql.seconds("cell", decimal, time_formats)
    row = _database().execute(f"SELECT {read} FROM (SELECT CAST(? AS VARCHAR) AS cell)", [text]).fetchone()
    return row is not None and row[0] is not None


@cache
def _pattern_of(time_format: str) -> re.Pattern[str] | None:
    """A pattern for texts in a format of years, months, days, hours, minutes and seconds.

    None for a format with other specifiers.
    """
    literals, specifiers = re.split("%(.)", time_format)[::2], re.findall("%(.)", time_format)
    if len(set(specifiers)) < len(specifiers) or not set(specifiers) <= _DIGITS.keys():
        return None
    groups = [f"(?P<{specifier}>{_DIGITS[specifier]})" for specifier in specifiers]
    return re.compile(
        "".join(re.escape(literal) + group for literal, group in zip(literals, [*groups, ""], strict=True))
    )


def _is_real_time(match: re.Match[str] | None) -> bool:
    """Whether a match holds a date and time that exist."""
    if match is None:
        return False
    parts = {"Y": 2000, "m": 1, "d": 1, "H": 0, "M": 0, "S": 0} | {
        key: int(part) for key, part in match.groupdict().items() if part
    }
    try:
        datetime(*parts.values())  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The connection on which single cells are read."""
    return duckdb.connect()


def _number(text: str, decimal: str) -> float | None:
    """The finite number in a text; None if there is none."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".")
    if not text.isascii():  # Python accepts digits of every script; DuckDB does not.
        return None
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
