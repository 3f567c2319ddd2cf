"""Columns of sources: names that need no option, and the SQL of ids, numbers and times in their cells."""

import re
from collections.abc import Sequence

import duckdb

from widenet.errors import DataError, OptionError, nearest

LARGEST_FLOAT32 = 3.4028234663852886e38

_USER_NAMES = (
    "user", "userid", "customerid", "customer", "reviewerid", "sessionid", "session", "uid", "visitorid",
    "visitor", "clientid", "client", "memberid", "accountid", "subscriberid", "buyerid", "profileid",
    "playerid", "householdid", "fullvisitorid", "userpseudoid",
)  # fmt: skip
_ITEM_NAMES = (
    "item", "itemid", "bookid", "movieid", "productid", "product", "artistid", "trackid", "songid", "asin",
    "isbn", "iid", "sku", "parentasin", "stockcode", "articleid", "ean", "upc", "gtin", "videoid",
    "contentid", "newsid", "businessid", "placeid", "venueid", "locationid", "poiid", "gameid", "appid",
    "recipeid", "animeid", "courseid", "hotelid", "listingid",
)  # fmt: skip
OBVIOUS = {
    "user": _USER_NAMES,
    "users_id": (*_USER_NAMES, "id"),
    "item": _ITEM_NAMES,
    "value": ("value", "rating", "score", "stars", "overall"),
    "time": (),
    "title_id": ("id", *_ITEM_NAMES),
    "title": ("title", "name"),
    "items_id": ("id", *_ITEM_NAMES),
    "items_title": ("title", "name"),
}
"""Names by which the column of an option is known without it, most obvious first, as `plain` writes them."""

RULES = {
    "user": "must not be empty",
    "item": "must not be empty",
    "value": "must be a finite number that a float32 can hold",
    "time": "must be a number, if whole below 2^53, or a timestamp to the microsecond",
}
"""The rule for the cells of each role."""

_YEAR = r"^\s*[0-9]{4}"
"""The start of a timestamp. DuckDB reads 5/1/24 as the year 5."""
_FINER = "[.][0-9]{6}[0-9]*[1-9]"
"""Fractions of a second finer than DuckDB's."""
_OFFSET = ":[0-9]{2}.*[+-][0-9]{2}(:?[0-9]{2}){0,2}$"
_ZONE = "[A-Za-z]{2}[A-Za-z_/]*$"
"""The end of a timestamp with an offset or with a time zone, of which only UTC and GMT are accepted."""


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: object) -> str:
    """Quote an SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def number(cell: str, decimal: str = ".") -> str:
    """The SQL of a text as a double that rounds to the nearest float32; NULL for anything but a finite one.

    DuckDB also reads 1_000. A text is rounded once: where the nearest double lies between two float32 and
    would go to the wrong one, its neighbour on the right side stands for it.
    """
    text = _with_point(f"CAST({cell} AS VARCHAR)", decimal)
    double, single = (f"try_cast({text} AS {kind})" for kind in ("DOUBLE", "FLOAT"))
    nearest_double = (
        f"CASE WHEN CAST({double} AS FLOAT) = {single} THEN {double} ELSE nextafter({double}, {single}) END"
    )
    return f"CASE WHEN NOT contains({text}, '_') AND {_fits(double)} THEN {nearest_double} END"


def finite(cell: str) -> str:
    """The SQL of a number as a double within the range of a float32; NULL for anything else.

    `isfinite` is needed because the statistics of a Parquet file leave NaN out, and DuckDB may decide a
    comparison from them.
    """
    double = f"CAST({cell} AS DOUBLE)"
    return f"CASE WHEN {_fits(double)} THEN {double} END"


def seconds(cell: str, decimal: str = ".", time_format: str | None = None) -> str:
    """The SQL of a cell as a finite number, or as seconds since 1970; NULL for anything else.

    A whole number is below 2^53, and a timestamp has microseconds at most: beyond, others would be equal.
    A timestamp without a time zone is UTC. Those with an offset are cast to TIMESTAMPTZ, because a cast to
    TIMESTAMP drops the offset. With any format, DuckDB accepts "infinity" and "epoch" as times; a time must
    hold a digit, which leaves these out.
    """
    text = f"CAST({cell} AS VARCHAR)"
    if time_format is not None:
        read = f"epoch(try_strptime({text}, {literal(time_format)}))"
        is_cut = f"regexp_matches({text}, '{_FINER}')" if "%n" in time_format else "false"
        return f"CASE WHEN regexp_matches({text}, '[0-9]') AND NOT {is_cut} THEN {read} END"
    zoned = f"WHEN regexp_matches({text}, '{_OFFSET}') THEN epoch(try_cast({text} AS TIMESTAMPTZ))"
    plain = (
        f"WHEN NOT regexp_matches({text}, '{_ZONE}') OR regexp_matches({text}, '(UTC|GMT)$') THEN"
        f" epoch(try_cast({text} AS TIMESTAMP))"
    )
    is_stamp = f"regexp_matches({text}, '{_YEAR}') AND NOT regexp_matches({text}, '{_FINER}')"
    stamp = f"CASE WHEN {is_stamp} THEN CASE {zoned} {plain} END END"
    value = f"coalesce(try_cast({_with_point(text, decimal)} AS DOUBLE), {stamp})"
    is_exact = f"isfinite({value}) AND (abs({value}) < {2**53} OR contains(lower({text}), 'e'))"
    return f"CASE WHEN NOT contains({text}, '_') AND {is_exact} THEN {value} END"


def is_moment(cell: str, decimal: str = ".") -> str:
    """The SQL condition of a cell with a time that `seconds` does not read as a number."""
    return f"try_cast({_with_point(f'CAST({cell} AS VARCHAR)', decimal)} AS DOUBLE) IS NULL"


def identifier(cell: str, is_float: bool = False) -> str:
    """The SQL of a cell as an id or a category; NULL for an empty one.

    Args:
        cell: The SQL of the cell.
        is_float: Whether it is a floating-point number; its text then has no ".0", and is NULL if it is not
            finite.
    """
    cast = f"CAST({cell} AS VARCHAR)"
    if not is_float:
        return f"nullif({cast}, '')"
    whole = f"CASE WHEN {cell} = trunc({cell}) THEN CAST(try_cast({cell} AS HUGEINT) AS VARCHAR) END"
    return f"CASE WHEN isfinite({cell}) THEN coalesce({whole}, {cast}) END"


def check_time_format(time_format: str) -> None:
    """Raise OptionError for a format that DuckDB does not accept, or one without specifiers."""
    try:
        with duckdb.connect() as database:
            database.execute(f"SELECT epoch(try_strptime('', {literal(time_format)}))")
    except duckdb.Error:
        rule = "must be a format of strptime, such as '%d/%m/%Y'"
        raise OptionError(rule, option="time_format", value=time_format) from None
    OptionError.require(
        "%" in time_format, "must hold specifiers such as %d", option="time_format", value=time_format
    )


def plain(column: str) -> str:
    """A column's name for comparisons: in lower case, without "_", "-" and spaces."""
    return re.sub("[_ -]", "", column.lower())


def listed(names: Sequence[str]) -> str:
    """List names in a message: the first 12, long ones shortened, those with outer spaces in quotes."""
    shown = [name if len(name) <= 30 else f"{name[:29]}…" for name in names[:12]]
    shown = [name if name == name.strip() else f'"{name}"' for name in shown]
    return ", ".join([*shown, *([f"and {len(names) - 12} more"] if len(names) > 12 else [])])


def check_names(place: str, names: Sequence[str]) -> None:
    """Raise DataError if names of columns differ in case alone, or not at all."""
    lowered = [name.lower() for name in names]
    twice = next((name for name in names if lowered.count(name.lower()) > 1), None)
    DataError.require(twice is None, "names of columns must differ in any case", place=place, column=twice)


def find_column(columns: Sequence[str], option: str, named: str | None) -> str | None:
    """Find the column of an option: the named one, or the first of its obvious names."""
    if named is not None:
        return named if named in columns else None
    return next(iter(_obvious(columns, option)), None)


def choose_column(place: str, columns: Sequence[str], option: str, named: str | None) -> str:
    """Find the column of an option, as `find_column` does.

    Args:
        place: Name of the source.
        columns: Columns of the source.
        option: The option; a key of `OBVIOUS`.
        named: Column that the user named; None if none.

    Raises:
        DataError: There is no such column, or several could be the user's, the item's or the value's.
    """
    rule, known = f"must name one of its columns, {listed(columns)}", _obvious(columns, option)
    if named in columns:
        return str(named)
    if named is not None:
        rule, known = f'{rule}; "{named}" does not exist.{nearest(named, columns)}', []
    elif option in ("user", "item", "value") and len(known) > 1:
        rule, known = f"must name one of {listed(known)}", []
    DataError.require(known, rule, place=place, option=option)
    return known[0]


def _obvious(columns: Sequence[str], option: str) -> list[str]:
    """The columns that could be an option's, most obvious first. Outer spaces make a name unknown."""
    known = {plain(column): column for column in reversed(columns) if column == column.strip()}
    return [known[name] for name in OBVIOUS[option] if name in known]


def _fits(double: str) -> str:
    return f"isfinite({double}) AND abs({double}) <= {LARGEST_FLOAT32}"


def _with_point(text: str, decimal: str) -> str:
    """The SQL of a number's text with a decimal point; a comma for decimals allows no point."""
    return (
        text if decimal == "." else f"CASE WHEN NOT contains({text}, '.') THEN replace({text}, ',', '.') END"
    )
