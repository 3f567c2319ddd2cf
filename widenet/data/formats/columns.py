"""Which columns of a source are the user, the item, the value and the time."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.text import NO_NUL
from widenet.errors import DataError, OptionError

_ITEM_NAMES = (
    *(
        "item",
        "itemid",
        "bookid",
        "movieid",
        "productid",
        "product",
        "artistid",
        "trackid",
        "songid",
        "asin",
        "isbn",
        "iid",
    ),
    *(
        "sku",
        "parentasin",
        "stockcode",
        "articleid",
        "ean",
        "upc",
        "gtin",
        "videoid",
        "contentid",
        "newsid",
        "businessid",
        "placeid",
    ),
    *(
        "venueid",
        "locationid",
        "poiid",
        "gameid",
        "appid",
        "recipeid",
        "animeid",
        "courseid",
        "hotelid",
        "listingid",
    ),
)
_USER_NAMES = (
    *("user", "userid", "customerid", "customer", "reviewerid", "sessionid", "session", "uid"),
    *(
        "visitorid",
        "visitor",
        "clientid",
        "client",
        "memberid",
        "accountid",
        "subscriberid",
        "buyerid",
        "profileid",
        "playerid",
    ),
    *("householdid", "fullvisitorid", "userpseudoid"),
)
OBVIOUS = {
    "user": _USER_NAMES,
    "users-id": (*_USER_NAMES, "id"),
    "item": _ITEM_NAMES,
    "value": ("value", "rating", "score", "stars", "overall"),
    "title-id": ("id", *_ITEM_NAMES),
    "title": ("title", "name"),
}
"""Column names that need no option, most obvious first; compared without case, "_" and "-"."""


_DECIMAL_COMMA = re.compile("[+-]?[0-9]+,[0-9]+")
_THOUSANDS = {
    sign: re.compile(rf"[+-]?[0-9]{{1,3}}({sign}[0-9]{{3}})+({other}[0-9]*)?")
    for sign, other in ((",", r"\."), (r"\.", ","))
}
_DAYS = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y %m %d",
    "%b %d, %Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%B %d, %Y",
    "%d %B %Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%y-%m-%d",
)
_HOURS = (
    "",
    " %H:%M:%S",
    " %H:%M",
    " %I:%M %p",
    " %I:%M:%S %p",
    ", %H:%M:%S",
    ", %H:%M",
    ", %I:%M:%S %p",
    ", %I:%M %p",
)
_ISO = re.compile(
    r"(?P<Y>[12][0-9]{3})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})([T"
    r" ](?P<H>[0-9]{2}):(?P<M>[0-9]{2}):(?P<S>[0-9]{2})(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?"
)
_DIGITS = {"Y": "[12][0-9]{3}", **dict.fromkeys("mdHMS", "[0-9]{2}")}
"""How the specifiers of usual formats are surely taken: DuckDB takes more, but an answer of it takes
milliseconds.
"""
_WHOLE = (
    "%a %b %d %H:%M:%S %Y",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%Y%m%dT%H%M%S",
)

RULES = {
    "user": "must not be empty",
    "item": "must not be empty",
    "value": "must be a number",
    "time": "must be a number or a timestamp",
}
"""What a cell of each role must be."""


@dataclass(frozen=True)
class Columns:
    """The column of each role; None where the source has none, or it is not wanted.

    decimal: what stands before decimals. time_format: how times are written, as DuckDB's strptime takes it;
    None: numbers and ISO.
    floats: columns of floating-point numbers, of which ids are written without ".0".
    """

    user: str
    item: str
    value: str | None = None
    time: str | None = None
    decimal: str = "."
    time_format: str | None = None
    floats: frozenset[str] = frozenset()

    def expressions(self) -> dict[str, tuple[str, str]]:
        """For each role that has a column: the column, and the SQL of what is read from it, NULL where it
        breaks the rule.
        """
        read = {
            role: (column, f"nullif({sql.text(sql.name(column), column in self.floats)}, '')")
            for role, column in (("user", self.user), ("item", self.item))
        }
        if self.value:
            read["value"] = (self.value, sql.number(sql.name(self.value), self.decimal))
        if self.time:
            read["time"] = (self.time, sql.seconds(sql.name(self.time), self.decimal, self.time_format))
        return read

    def interactions(self, table: str) -> str:
        """The SQL query of `user`, `item`, `value`, `time` from an SQL table; an absent value is 1, an
        absent time 0.
        """
        read = {"value": ("", "1.0"), "time": ("", "0.0")} | self.expressions()
        listed = ", ".join(f"{expression} AS {sql.name(role)}" for role, (_, expression) in read.items())
        return f"SELECT {listed} FROM {table}"


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first dozen, each of a readable length."""
    shown = [name if len(name) <= 30 else f"{name[:29]}…" for name in names[:12]]
    return ", ".join([*shown, *([f"and {len(names) - 12} more"] if len(names) > 12 else [])])


def plain(column: str) -> str:
    """A column's name as it is compared: without case, "_", "-" and spaces."""
    return column.lower().replace("_", "").replace("-", "").replace(" ", "")


def chosen(
    place: str,
    found: Sequence[str],
    role: str,
    named: str | None,
    otherwise: str | None = None,
    remedy: str = "",
) -> str:
    """The column of a role: the one named, or else the obvious one, or else `otherwise`.

    remedy: what else may help where there is none. Raises DataError listing the columns found.
    """
    option = role.replace("-", "_")
    if named is not None:
        if named not in found:
            near = difflib.get_close_matches(named, found, n=1)
            guess = f' Did you mean "{near[0]}"?' if near else ""
            raise DataError(
                f'{place}: column "{named}" does not exist; it has {listed(found)}.{guess} Choose with'
                f" `{option}`."
            )
        return named
    known = {plain(column): column for column in reversed(found)}
    for name in OBVIOUS[role]:
        if name in known:
            return known[name]
    if otherwise is not None:
        return otherwise
    raise DataError(
        f"{place}: no column is obviously the {role}; it has {listed(found)}. Name one with"
        f" `{option}`{remedy}."
    )


def broken(column: str, role: str, text: str | None, columns: Columns) -> str:
    """The end of a sentence about a cell that breaks the rule of its role."""
    got = f'; got "{text}"' if text else ""
    rule, remedy = RULES[role], None
    if role == "value":
        remedy = remedy_for(text, "decimal", columns.decimal)
        if (
            text
            and (number := _number(text, columns.decimal)) is not None
            and abs(number) > sql.LARGEST_FLOAT32
        ):
            rule, remedy = (
                "must lie between -3.4e38 and 3.4e38, as a float32 does",
                "Scale the column down, or take its logarithm.",
            )
    if role == "time":
        if columns.time_format is not None:
            rule, remedy = (
                f"must be a time as `time_format={columns.time_format!r}` has it",
                "Correct the format, or fix the row.",
            )
        elif text:
            remedy = _time_remedy(text)
    return f'column "{column}" {rule}{got}. {remedy or "Fix or remove the row."}'


def remedy_for(text: str | None, option: str, decimal: str = ".") -> str | None:
    """What to do about a number that is written in another way; None about any other text. option: that of
    decimal commas, for CSV.
    """
    text = text or ""
    if decimal == "." and _THOUSANDS[","].fullmatch(text):
        plain_number = text.replace(",", "")
        if text.count(",") > 1 or "." in text:
            return f"Write {plain_number}, without commas between thousands."
        return (
            f"Write {plain_number} if the comma parts thousands, or say `{option}=','` if it stands before"
            " decimals."
        )
    if decimal == "." and _THOUSANDS[r"\."].fullmatch(text):
        return f"Write {text.replace('.', '').replace(',', '.')}, without points between thousands."
    if decimal == "," and _THOUSANDS[r"\."].fullmatch(text) and (text.count(".") > 1 or "," in text):
        return f"Write {text.replace('.', '')}, without points between thousands."
    if decimal == "." and _DECIMAL_COMMA.fullmatch(text):
        return f"Write {text.replace(',', '.')}, or say `{option}=','` for CSV with decimal commas."
    if decimal == "," and "." in text and is_number(text):
        return f"Write {text.replace('.', ',')}, or leave `{option}` out."
    return None


def _time_remedy(text: str) -> str | None:
    """The formats that a time may be written in; None where none of the usual ones fits."""
    formats = [day + hour for day in _DAYS for hour in _HOURS] + list(_WHOLE)
    fitting = [f"'{each}'" for each in formats if _fits(text.strip(), each)]
    return f"Say `time_format={fitting[0]}`{f' or {fitting[1]}' if fitting[1:] else ''}." if fitting else None


def _fits(text: str, time_format: str) -> bool:
    try:
        datetime.strptime(text, time_format)
    except ValueError:
        return False
    return True


def check_time_format(time_format: str) -> None:
    """Raise OptionError for a format that DuckDB does not take."""
    try:
        with duckdb.connect() as database:
            database.execute(f"SELECT epoch(try_strptime('', {sql.literal(time_format)}))")
    except duckdb.Error:
        rule = "must be a format of strptime, such as '%d/%m/%Y' or '%d.%m.%Y %H:%M:%S'"
        raise OptionError(f"`time_format` {rule}; got {time_format!r}.") from None
    if "%" not in time_format:
        raise OptionError(f"`time_format` must hold specifiers such as %d, %m and %Y; got {time_format!r}.")


def first_broken(cells: Mapping[str, str], columns: Columns) -> str | None:
    """The first cell of a row, by column, that breaks the rule of its role, as the end of a sentence; None
    where all keep them.
    """
    holds: dict[str, Callable[[str], bool]] = {
        "user": bool,
        "item": bool,
        "value": lambda text: is_number(text, columns.decimal),
        "time": lambda text: _is_time(text, columns.decimal, columns.time_format),
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


def _is_time(text: str, decimal: str, time_format: str | None) -> bool:
    if time_format is None and _number(text, decimal) is not None:
        return True
    if (pattern := _ISO if time_format is None else _usual(time_format)) and _is_moment(
        pattern.fullmatch(text)
    ):
        return True
    read = sql.seconds("cell", decimal, time_format)
    found = _database().execute(f"SELECT {read} FROM (SELECT CAST(? AS VARCHAR) AS cell)", [text]).fetchone()
    return found is not None and found[0] is not None


@cache
def _usual(time_format: str) -> re.Pattern[str] | None:
    """What texts in a format of years, months, days, hours, minutes and seconds look like; None for
    another format.
    """
    literals, specifiers = re.split("%(.)", time_format)[::2], re.findall("%(.)", time_format)
    if len(set(specifiers)) < len(specifiers) or not set(specifiers) <= _DIGITS.keys():
        return None
    groups = [f"(?P<{specifier}>{_DIGITS[specifier]})" for specifier in specifiers]
    return re.compile(
        "".join(re.escape(literal) + group for literal, group in zip(literals, [*groups, ""], strict=True))
    )


def _is_moment(found: re.Match[str] | None) -> bool:
    """Whether what was found are the parts of a moment that exists."""
    if found is None:
        return False
    parts = {"Y": 2000, "m": 1, "d": 1, "H": 0, "M": 0, "S": 0} | {
        key: int(part) for key, part in found.groupdict().items() if part
    }
    try:
        datetime(*parts.values())  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Where single cells are read."""
    return duckdb.connect()


def _number(text: str, decimal: str) -> float | None:
    """The finite number that a text says; None where it says none."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".")
    if not text.isascii():  # Python takes digits of every script, DuckDB does not
        return None
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
