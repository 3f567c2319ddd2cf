"""Which columns of a source are the user, the item, the value and the time."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from widenet.data.formats import sql
from widenet.data.formats.text import NO_NUL
from widenet.errors import DataError

_ITEM_NAMES = ("item", "itemid", "bookid", "movieid", "productid", "product", "artistid", "trackid", "songid", "asin", "isbn", "iid")
_USER_NAMES = ("user", "userid", "customerid", "customer", "reviewerid", "sessionid", "session", "uid")
OBVIOUS = {
    "user": _USER_NAMES,
    "users-id": (*_USER_NAMES, "id"),
    "item": _ITEM_NAMES,
    "value": ("value", "rating", "score", "stars"),
    "title-id": ("id", *_ITEM_NAMES),
    "title": ("title", "name"),
}
"""Column names that need no option, most obvious first; compared without case, "_" and "-"."""


_DECIMAL_COMMA = re.compile("[+-]?[0-9]+,[0-9]+")

RULES = {
    "user": "must not be empty",
    "item": "must not be empty",
    "value": "must be a number",
    "time": "must be a number or a timestamp",
}
"""What a cell of each role must be."""


@dataclass(frozen=True)
class Columns:
    """The column of each role; None where the source has none, or it is not wanted. decimal: what stands before decimals."""

    user: str
    item: str
    value: str | None = None
    time: str | None = None
    decimal: str = "."

    def expressions(self) -> dict[str, tuple[str, str]]:
        """For each role that has a column: the column, and the SQL of what is read from it, NULL where it breaks the rule."""
        read = {
            role: (column, f"nullif(CAST({sql.name(column)} AS VARCHAR), '')")
            for role, column in (("user", self.user), ("item", self.item))
        }
        if self.value:
            read["value"] = (self.value, sql.number(sql.name(self.value), self.decimal))
        if self.time:
            read["time"] = (self.time, sql.seconds(sql.name(self.time), self.decimal))
        return read

    def interactions(self, table: str) -> str:
        """The SQL query of `user`, `item`, `value`, `time` from an SQL table; an absent value is 1, an absent time 0."""
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


def chosen(place: str, found: Sequence[str], role: str, named: str | None, otherwise: str | None = None, remedy: str = "") -> str:
    """The column of a role: the one named, or else the obvious one, or else `otherwise`.

    remedy: what else may help where there is none. Raises DataError listing the columns found.
    """
    if named is not None:
        if named not in found:
            near = difflib.get_close_matches(named, found, n=1)
            guess = f' Did you mean "{near[0]}"?' if near else ""
            raise DataError(f'{place}: column "{named}" does not exist; it has {listed(found)}.{guess} Choose with --{role}.')
        return named
    known = {plain(column): column for column in reversed(found)}
    for name in OBVIOUS[role]:
        if name in known:
            return known[name]
    if otherwise is not None:
        return otherwise
    raise DataError(f"{place}: no column is obviously the {role}; it has {listed(found)}. Name one with --{role}{remedy}.")


def broken(column: str, role: str, text: str | None, decimal: str = ".") -> str:
    """The end of a sentence about a cell that breaks the rule of its role."""
    got = f'; got "{text}"' if text else ""
    remedy = remedy_for(text, "--decimal", decimal) if role == "value" else None
    return f'column "{column}" {RULES[role]}{got}. {remedy or "Fix or remove the row."}'


def remedy_for(text: str | None, option: str, decimal: str = ".") -> str | None:
    """What to do about a number with the other decimal sign; None about any other text. option: that says which it is, for CSV."""
    if decimal == "." and _DECIMAL_COMMA.fullmatch(text or ""):
        return f"Write {str(text).replace(',', '.')}, or say {option} , for CSV with decimal commas."
    if decimal == "," and "." in (text or "") and is_number(text or ""):
        return f"Write {str(text).replace('.', ',')}, or leave {option} out."
    return None


def first_broken(cells: Mapping[str, str], columns: Columns) -> str | None:
    """The first cell of a row, by column, that breaks the rule of its role, as the end of a sentence; None where all keep them."""
    holds: dict[str, Callable[[str], bool]] = {
        "user": bool,
        "item": bool,
        "value": lambda text: is_number(text, columns.decimal),
        "time": lambda text: _is_time(text, columns.decimal),
    }
    for role, (name, _) in columns.expressions().items():
        if not holds[role](cells[name]):
            return broken(name, role, cells[name], columns.decimal)
        if "\0" in cells[name]:
            return f'column "{name}" {NO_NUL}'
    return None


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text is a finite number that a float32 can hold."""
    number = _number(text, decimal)
    return number is not None and abs(number) <= sql.LARGEST_FLOAT32


def _is_time(text: str, decimal: str) -> bool:
    if _number(text, decimal) is not None:
        return True
    try:
        return bool(datetime.fromisoformat(text.strip()))
    except ValueError:
        return False


def _number(text: str, decimal: str) -> float | None:
    """The finite number that a text says; None where it says none."""
    if decimal == ",":
        text = "" if "." in text else text.replace(",", ".")
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
