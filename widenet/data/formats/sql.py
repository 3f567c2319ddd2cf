"""Quoting for the SQL that the formats are written in, and the rules of numbers and times."""

import re
from pathlib import Path

from widenet.data.formats.text import TextFile
from widenet.regular_files import LONGEST_LINE_BYTES

LARGEST_FLOAT32 = 3.4028234663852886e38

_YEAR = r"^\s*[0-9]{4}"
"""How a timestamp begins. DuckDB would take 5/1/24 as the year 5."""
_OFFSET = ":[0-9]{2}.*[+-][0-9]{2}(:?[0-9]{2}){0,2}$"
_ZONE = "[A-Za-z]{2}[A-Za-z_/]*$"
"""How a timestamp ends that has an offset, or the name of a zone, of which only UTC and GMT are taken."""

_NO_DELIMITER = "\x01"


def name(text: str) -> str:
    """An SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def literal(text: object) -> str:
    """An SQL string."""
    return "'" + str(text).replace("'", "''") + "'"


def read(function: str, path: Path, options: str = "") -> str:
    """The SQL table that a DuckDB reader makes of one file; its path is taken letter by letter.

    DuckDB would read `*`, `?` and `[` as a pattern, `~` and `s3://` at the start as another place, and a
    folder `user=5` as a column.
    """
    escaped = re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", str(path.absolute()))
    return f"{function}({literal(escaped)}, hive_partitioning = false{options and ', '}{options})"


def lines(file: TextFile, skip: int = 0) -> str:
    """The SQL table of the lines of a text after the first `skip`: `line`, NULL for an empty one; in any
    order.
    """
    file.check_end(LONGEST_LINE_BYTES)
    options = (
        f"columns = {{'line': 'VARCHAR'}}, delim = '{_NO_DELIMITER}', quote = '', escape = '', comment = '', "
        f"header = false, auto_detect = false, strict_mode = false, compression = '{file.compression}', "
        f"max_line_size = {LONGEST_LINE_BYTES}, buffer_size = {2 * LONGEST_LINE_BYTES}, skip = {skip}"
    )
    return read("read_csv", file.path, options)


def number(expression: str, decimal: str = ".") -> str:
    """The expression as a finite float32 in a double, or NULL. decimal: what stands before its decimals; a
    comma needs a text.

    `isfinite` is asked because a Parquet file's statistics leave NaN out, by which DuckDB may take a
    comparison as known.
    """
    read = f"try_cast({_with_point(expression, decimal)} AS DOUBLE)"
    return f"CASE WHEN isfinite({read}) AND abs({read}) <= {LARGEST_FLOAT32} THEN {read} END"


def seconds(expression: str, decimal: str = ".", time_format: str | None = None) -> str:
    """The expression as a finite number, or as the seconds since 1970 of a timestamp; otherwise NULL.

    A timestamp without a zone is UTC. DuckDB leaves an offset out that it casts to TIMESTAMP, so that those
    with one are cast otherwise. With every format it takes "infinity" and "epoch" for times, which have no
    digit.
    """
    text = f"CAST({expression} AS VARCHAR)"
    if time_format is not None:
        return (
            f"CASE WHEN regexp_matches({text}, '[0-9]') THEN epoch(try_strptime({text},"
            f" {literal(time_format)})) END"
        )
    zoned = f"WHEN regexp_matches({text}, '{_OFFSET}') THEN epoch(try_cast({text} AS TIMESTAMPTZ))"
    plain = (
        f"WHEN NOT regexp_matches({text}, '{_ZONE}') OR regexp_matches({text}, '(UTC|GMT)$') THEN"
        f" epoch(try_cast({text} AS TIMESTAMP))"
    )
    stamp = f"CASE WHEN regexp_matches({text}, '{_YEAR}') THEN CASE {zoned} {plain} END END"
    found = f"coalesce(try_cast({_with_point(text, decimal)} AS DOUBLE), {stamp})"
    return f"CASE WHEN isfinite({found}) THEN {found} END"


def text(expression: str, is_float: bool = False) -> str:
    """The expression as text, as ids are kept. is_float: of a floating-point number, without ".0"; NULL
    where it is not finite.
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
    """The text of a number with a point before its decimals; NULL where it has one already in place of a
    comma.
    """
    return (
        text if decimal == "." else f"CASE WHEN NOT contains({text}, '.') THEN replace({text}, ',', '.') END"
    )
