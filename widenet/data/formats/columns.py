"""Which columns of a source are the user, the item, the value and the time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from widenet.data.formats import sql
from widenet.errors import DataError, did_you_mean

_ITEM_NAMES = ("item", "itemid", "bookid", "movieid", "productid", "product", "artistid", "trackid", "songid", "asin", "isbn", "iid")
OBVIOUS = {
    "user": ("user", "userid", "customerid", "customer", "reviewerid", "sessionid", "session", "uid"),
    "item": _ITEM_NAMES,
    "value": ("value", "rating", "score", "stars"),
    "title-id": ("id", *_ITEM_NAMES),
    "title": ("title", "name"),
}
"""Column names that need no option, most obvious first; compared without case, "_" and "-"."""


RULES = {
    "user": "must not be empty",
    "item": "must not be empty",
    "value": "must be a number",
    "time": "must be a number or a timestamp",
}
"""What a cell of each role must be."""


@dataclass(frozen=True)
class Columns:
    """The column of each role; None where the source has none, or it is not wanted."""

    user: str
    item: str
    value: str | None = None
    time: str | None = None

    def expressions(self) -> dict[str, tuple[str, str]]:
        """For each role that has a column: the column, and the SQL of what is read from it, NULL where it breaks the rule."""
        read = {
            role: (column, f"nullif(CAST({sql.name(column)} AS VARCHAR), '')")
            for role, column in (("user", self.user), ("item", self.item))
        }
        if self.value:
            read["value"] = (self.value, sql.number(sql.name(self.value)))
        if self.time:
            read["time"] = (self.time, sql.seconds(sql.name(self.time)))
        return read

    def interactions(self, table: str) -> str:
        """The SQL query of `user`, `item`, `value`, `time` from an SQL table; an absent value is 1, an absent time 0."""
        read = {"value": ("", "1.0"), "time": ("", "0.0")} | self.expressions()
        listed = ", ".join(f"{expression} AS {sql.name(role)}" for role, (_, expression) in read.items())
        return f"SELECT {listed} FROM {table}"  # noqa: S608


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first dozen, each of a readable length."""
    shown = [name if len(name) <= 30 else f"{name[:29]}…" for name in names[:12]]
    return ", ".join([*shown, *([f"and {len(names) - 12} more"] if len(names) > 12 else [])])


def chosen(path: Path, found: Sequence[str], role: str, named: str | None) -> str:
    """The column of a role: the one named, or else the obvious one; raises DataError listing the columns found."""
    if named is not None:
        if named not in found:
            raise DataError(f'{path}: column "{named}" does not exist.{did_you_mean(named, found)} Choose with --{role}.')
        return named
    plain = {column.lower().replace("_", "").replace("-", "").replace(" ", ""): column for column in reversed(found)}
    for name in OBVIOUS[role]:
        if name in plain:
            return plain[name]
    raise DataError(f"{path}: no column is obviously the {role}; it has {listed(found)}. Name one with --{role}.")


def broken(column: str, role: str, text: str | None) -> str:
    """The end of a sentence about a cell that breaks the rule of its role."""
    got = f'; got "{text}"' if text else ""
    return f'column "{column}" {RULES[role]}{got}. Fix or remove the row.'
