"""Finds unread times beside sequences, which take rows in the order of the sources without `time`."""

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, plain
from widenet.data.formats.guesses import LISTS
from widenet.data.formats.source import Source
from widenet.errors import DataError

_NAMES = (
    "time", "timestamp", "ts", "date", "datetime", "at", "createdat", "updatedat", "created", "eventtime",
    "eventtimestamp", "eventdate", "clicktime", "visittime", "ratingtimestamp", "unixtime", "unixreviewtime",
    "reviewtime", "utctimestamp", "localtime", "transactiondate", "purchasedate", "orderdate", "invoicedate",
    "tdat", "playedat", "listenedat",
)  # fmt: skip
"""Names of columns of times, as `plain` writes them."""
_FIRST_ROWS = 100_000


def note_on_order(source: Source, columns: Columns, connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return a line about a column of times that does not order a source of sequences; None without one.

    Args:
        source: The source, read without times.
        columns: Its columns.
        connection: A database that keeps the order of rows.

    Raises:
        DataError: The column has a name of times, and the first rows of a user are not in their order.
    """
    if (column := _times(source, columns, connection)) is None:
        return None
    if plain(column) in _NAMES:  # a release date has its type, and orders nothing
        _check_order(source, columns, column, connection, f"Order them with `time={column!r}`")
    return f"note: rows are taken in the order of {source.name}; `time={column!r}` orders them by that column"


def check_order(source: Source, columns: Columns, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise DataError if the first rows of a user are not in the order of a column with a name of times."""
    column = _times(source, columns, connection)
    if column is not None and plain(column) in _NAMES:
        _check_order(source, columns, column, connection, "Sort the table by it")


def _times(source: Source, columns: Columns, connection: duckdb.DuckDBPyConnection) -> str | None:
    """The first unread column that holds times by its name, its type or its cells; None if there is none."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {source.scan(connection)}").fetchall()
    types = {name: str(kind) for name, kind, *_ in described}
    for column in source.columns:
        is_typed = types.get(column, "").startswith(("DATE", "TIMESTAMP"))
        is_like_times = source.suspects.get(column, LISTS) != LISTS
        if column not in (columns.user, columns.item, columns.value) and (
            plain(column) in _NAMES or is_typed or is_like_times
        ):
            return column
    return None


def _check_order(
    source: Source, columns: Columns, column: str, connection: duckdb.DuckDBPyConnection, remedy: str
) -> None:
    """Raise DataError if a user has an earlier time below a later one in the first rows."""
    time = sql.seconds(sql.name(column), source.decimal)
    first = (
        f"SELECT {source.text(columns.user)} AS name, {time} AS time, row_number() OVER () AS place"
        f" FROM {source.scan(connection)} LIMIT {_FIRST_ROWS}"
    )
    steps = f"SELECT *, lag(time) OVER (PARTITION BY name ORDER BY place) AS before FROM ({first})"
    [(user,)] = connection.execute(
        f"SELECT arg_min(name, place) FROM ({steps}) WHERE time < before"
    ).fetchall()
    if user is not None:
        raise DataError(
            f'{source.name}: the rows of a sequence must be in order; those of user "{user}" are not in the'
            f' order of column "{column}". {remedy}, or remove the column.'
        )
