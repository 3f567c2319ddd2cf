"""Quotes names and texts for DuckDB's SQL, and converts numbers, times and ids."""

import re
from collections.abc import Sequence
from pathlib import Path

from widenet.data.formats.text import TextFile
from widenet.regular_files import LONGEST_LINE_BYTES

LARGEST_FLOAT32 = 3.4028234663852886e38

_YEAR = r"^\s*[0-9]{4}"
"""The start of a timestamp. DuckDB reads 5/1/24 as the year 5."""
_OFFSET = ":[0-9]{2}.*[+-][0-9]{2}(:?[0-9]{2}){0,2}$"
_ZONE = "[A-Za-z]{2}[A-Za-z_/]*$"
"""The end of a timestamp with an offset or with a time zone, of which only UTC and GMT are accepted."""

_NO_DELIMITER = "\x01"


def name(text: str) -> str:
    """Quote an SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def literal(text: object) -> str:
    """Quote an SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def read(function: str, path: Path, options: str = "") -> str:
    """Call a DuckDB reader for one file, as an SQL table; the path is taken literally.

    Without this, DuckDB reads `*`, `?` and `[` as a pattern, `~` and `s3://` at the start as another place,
    and a folder `user=5` as a column.
    """
    escaped = re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", str(path.absolute()))
    return f"{function}({literal(escaped)}, hive_partitioning = false{options and ', '}{options})"


def lines(file: TextFile, skip: int = 0) -> str:
    """The SQL table of the lines of a text in any order, with the column `line`; NULL for an empty line.

    Args:
        file: The text.
        skip: Number of lines to skip at the start.
    """
    file.check_end(LONGEST_LINE_BYTES)
    options = (
        f"columns = {{'line': 'VARCHAR'}}, delim = '{_NO_DELIMITER}', quote = '', escape = '', comment = '', "
        f"header = false, auto_detect = false, strict_mode = false, compression = '{file.compression}', "
        f"max_line_size = {LONGEST_LINE_BYTES}, buffer_size = {2 * LONGEST_LINE_BYTES}, skip = {skip}"
    )
    return read("read_csv", file.path, options)


def number(expression: str, decimal: str = ".") -> str:
    """The SQL of an expression as a double within the range of a float32; NULL for anything else.

    `isfinite` is needed because the statistics of a Parquet file leave NaN out, and DuckDB may decide a
    comparison from them.

    Args:
        expression: The SQL expression; a text if `decimal` is a comma.
        decimal: Decimal separator.
    """
    read = f"try_cast({_with_point(expression, decimal)} AS DOUBLE)"
    return f"CASE WHEN isfinite({read}) AND abs({read}) <= {LARGEST_FLOAT32} THEN {read} END"


def seconds(expression: str, decimal: str = ".", time_formats: Sequence[str] = ()) -> str:
    """The SQL of an expression as a finite number, or as seconds since 1970; NULL for anything else.

    A timestamp without a time zone is UTC. Those with an offset are cast to TIMESTAMPTZ, because a cast to
    TIMESTAMP drops the offset. With any format, DuckDB accepts "infinity" and "epoch" as times; a time must
    hold a digit, which leaves these out. Of several formats, the first that fits counts.
    """
    text = f"CAST({expression} AS VARCHAR)"
    if time_formats:
        read = ", ".join(f"epoch(try_strptime({text}, {literal(each)}))" for each in time_formats)
        return f"CASE WHEN regexp_matches({text}, '[0-9]') THEN coalesce({read}) END"
    zoned = f"WHEN regexp_matches({text}, '{_OFFSET}') THEN epoch(try_cast({text} AS TIMESTAMPTZ))"
    plain = (
        f"WHEN NOT regexp_matches({text}, '{_ZONE}') OR regexp_matches({text}, '(UTC|GMT)$') THEN"
        f" epoch(try_cast({text} AS TIMESTAMP))"
    )
    stamp = f"CASE WHEN regexp_matches({text}, '{_YEAR}') THEN CASE {zoned} {plain} END END"
    value = f"coalesce(try_cast({_with_point(text, decimal)} AS DOUBLE), {stamp})"
    return f"CASE WHEN isfinite({value}) THEN {value} END"


def text(expression: str, is_float: bool = False) -> str:
    """The SQL of an expression as text, in the form of ids.

    Args:
        expression: The SQL expression.
        is_float: Whether it is a floating-point number; its text then has no ".0", and is NULL if it is not
            finite.
    """
    cast = f"CAST({expression} AS VARCHAR)"
    if not is_float:
        return cast
    whole = (
        f"CASE WHEN {expression} = trunc({expression}) THEN CAST(try_cast({expression} AS HUGEINT) AS"
        " VARCHAR) END"
    )
    return f"CASE WHEN isfinite({expression}) THEN coalesce({whole}, {cast}) END"


def _with_point(text: str, decimal: str) -> str:
    """The SQL of a number's text with a decimal point.

    NULL for a text with a point if the decimal separator is a comma.
    """
    return (
        text if decimal == "." else f"CASE WHEN NOT contains({text}, '.') THEN replace({text}, ',', '.') END"
    )
