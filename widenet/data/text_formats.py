"""Readers of text: tables, lines of words, DSSTNE's text and JSON, each as SQL in DuckDB.

Options, the format itself or a header with known names say what a file holds. Where they leave two readings
that give different data, the file is refused, and the error names the option that decides.
"""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.columns import find_column, literal
from widenet.data.source import BLOCK_BYTES, ROW_NUMBER, SIGNS, SPACES, Reading, Scan, Source, Text, line_at
from widenet.errors import DataError, reason_of
from widenet.regular_files import LONGEST_LINE_BYTES

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", "::": "double colons"}
"""The usual delimiters of tables."""

_COMPRESSIONS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\x28\xb5\x2f\xfd": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
}
"""Opens a compressed file, by its first bytes: gzip and zstd."""

_SAMPLE_LINES = 1000

_SAMPLE_BYTES = 2**20

_LONGEST_RECORD_BYTES = 2**21

_BUFFER_BYTES = 2**23
"""A quarter of DuckDB's default, because each of its threads holds several buffers."""

_WORDS = "list_filter(string_split_regex({line}, {delimiter}), lambda word: word <> '')"

_OTHER_LAYOUT = (
    r"[,:]|(^|\s)[0-9]{4}-[0-9]{2}-[0-9]{2}|"
    r"^(\S+\s+)?(\S+\s+(9[0-9]{8}|1[0-9]{9}|1[0-9]{12}|[0-9]+\.[0-9]+)\s*)+$"
)
"""What lines of words do not hold, unless an option says how words are separated: signs of other layouts,
dates, and a time or a fraction after each item.
"""


def prepared(path: Path, name: str, folder: Path) -> Text:
    """Survey a text, and copy it if it is compressed or its lines end in several ways.

    DuckDB takes zeros after a gzip stream for damage, drops rows where line ends are mixed, and skips a last
    line that is longer than its buffer.

    Raises:
        DataError: The text holds NUL, or what is compressed is cut off or damaged.
    """
    num_lf = num_cr = num_crlf = num_quotes = 0
    signs, last, has_odd_quotes = set[str](), b"", False
    with path.open("rb") as file:
        head = file.read(4)
    packed = next((opened for magic, opened in _COMPRESSIONS.items() if head.startswith(magic)), None)
    copy = folder / f"{len(list(folder.iterdir()))}.text"
    opened = path.open("rb") if packed is None else packed(path)
    try:
        with opened as file, copy.open("wb") if packed else io.BytesIO() as plain:
            for block in _blocks(file):
                if b"\0" in block:
                    line = num_lf + block[: block.index(b"\0")].count(b"\n") + 1
                    raise DataError("must be text in UTF-8 without NUL", place=name, line=line)
                signs |= {sign for sign in SIGNS - signs if sign.encode() in block}
                num_lf += block.count(b"\n")
                if b"\r" in block:
                    num_cr += block.count(b"\r")
                    num_crlf += block.count(b"\r\n")
                last = block or last
                if b'"' in block and not has_odd_quotes:
                    has_odd_quotes, num_quotes = _odd_quotes(block, num_quotes)
                if packed:
                    plain.write(block)
    except (EOFError, OSError, zlib.error) as error:
        if packed is None or getattr(error, "errno", None) is not None:  # the disk failed
            raise
        raise DataError(f"must be a complete compressed file: {reason_of(error)}", place=name) from error
    num_lines = num_lf + num_cr - num_crlf + (not last.endswith((b"\n", b"\r")))
    has_odd_quotes |= num_quotes % 2 == 1
    text = Text(copy if packed else path, num_lines, frozenset(signs), has_odd_quotes)
    if num_cr and not num_cr == num_crlf == num_lf:
        even = folder / f"{copy.name}.even"
        with text.path.open("rb") as file, even.open("wb") as target:
            for block in _blocks(file):
                target.write(block.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        text = replace(text, path=even)
    return text


def _odd_quotes(block: bytes, num_before: int) -> tuple[bool, int]:
    """Return whether a line ends after an odd number of quotes, and their number up to the block's end."""
    byte_N = np.frombuffer(block, dtype=np.uint8)
    number_N = num_before + np.cumsum(byte_N == ord('"'))
    is_end_N = (byte_N == ord("\n")) | (byte_N == ord("\r"))
    return bool((number_N[is_end_N] % 2).any()), int(number_N[-1])


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks; no block ends between CR and LF."""
    held = b""
    while piece := file.read(BLOCK_BYTES):
        piece = held + piece
        held = b"\r" if piece.endswith(b"\r") else b""
        yield piece.removesuffix(held)
    yield held


def sample_of(text: Text) -> list[str]:
    """The first lines with their ends; the first one is whole however long, the last one is not cut off."""
    with text.path.open("rb") as file:
        start = file.read(_SAMPLE_BYTES)
        if b"\n" not in start:
            start += file.readline(LONGEST_LINE_BYTES)
        is_whole = not file.read(1)
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", start.removeprefix(codecs.BOM_UTF8).decode(errors="replace"))
    return (lines if is_whole or len(lines) == 1 else lines[:-1])[:_SAMPLE_LINES]


def _check_last_line(text: Text, name: str, most: int) -> None:
    """Raise DataError for a last line that DuckDB would skip, because it is longer than a buffer."""
    with text.path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - most - 2))
        tail = file.read().rstrip(b"\r\n")
    DataError.require(
        len(tail) <= most or b"\n" in tail, f"the last line must have at most {most:,} bytes", place=name
    )


def _read_csv(text: Text, scan: Scan, options: str) -> str:
    """The SQL table of a text; rows are numbered in its order, and those that are left out are recorded.

    One thread numbers rows in order; with `parallel = false`, DuckDB would not record a cell without end.
    """
    options += ", auto_detect = false, compression = 'none', hive_partitioning = false"
    if scan.skipping:
        options += ", store_rejects = true"
    table = f"read_csv({sql_path(text.path)}, {options})"
    return f"(SELECT *, row_number() OVER () AS {ROW_NUMBER} FROM {table})" if scan.numbered else table


def sql_path(path: Path) -> str:
    """The SQL of a path that DuckDB takes literally, not as a pattern or as a place such as `~` or `s3://`."""
    return literal(re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", str(path.absolute())))


def _records(lines: Iterable[str], delimiter: str, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record with the number of the line after it."""
    if len(delimiter) > 1:
        filled = ((place, line.rstrip("\r\n")) for place, line in enumerate(lines, start=2) if line.strip())
        yield from ((place, line.split(delimiter)) for place, line in filled)
        return
    quote = '"' if reading.quote is None else reading.quote
    reader = csv.reader(
        lines,
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    )
    try:
        for cells in reader:
            if cells:
                yield reader.line_num + 1, cells
    except csv.Error:
        return


def _kept(lines: Iterable[str], delimiter: str, reading: Reading) -> list[tuple[int, list[str]]]:
    """The records that are no comments."""
    return [
        record
        for record in _records(lines, delimiter, reading)
        if not (reading.comment and record[1][0].startswith(reading.comment))
    ]


def _delimiter_of(name: str, sample: Sequence[str], reading: Reading) -> str:
    """The delimiter that was named, or the only usual one that cuts all first lines into as many cells.

    If lines differ, it is the only one that makes line 1 a header with known names, or cuts it into as many
    cells as columns were named.
    """
    DataError.require(
        reading.delimiter != SPACES,
        "is for lines of words; name one character",
        option=reading.option("delimiter"),
    )
    if reading.delimiter is not None:
        return reading.delimiter
    known = [delimiter for delimiter in DELIMITERS if delimiter != reading.decimal]
    records = {delimiter: _kept(sample, delimiter, reading) for delimiter in known}
    widths = {delimiter: {len(cells) for _, cells in records[delimiter]} for delimiter in known}
    fitting = [delimiter for delimiter in known if len(widths[delimiter]) == 1 and max(widths[delimiter]) > 1]
    headers = [each for each in known if records[each] and _names_columns(records[each][0][1], reading)]
    width = len(reading.columns or ())
    named = [each for each in known if width > 1 and records[each] and len(records[each][0][1]) == width]
    for chosen in (fitting, headers, named):
        if len(chosen) == 1:
            return chosen[0]
    if "\t" in fitting and name.removesuffix(".gz").removesuffix(".zst").endswith(".tsv"):
        return "\t"
    rule = f"must be given: {len(fitting)} of the usual ones cut the first lines into columns"
    option = reading.option("columns") if reading.prefix else "delimiter"
    raise DataError(rule, place=name, option=option, value=sample[0].rstrip("\r\n"))


def _names_columns(cells: Sequence[str], reading: Reading) -> bool:
    """Whether a line holds the names of columns: of the user and the item, or in other files of any role."""
    found = [find_column(cells, option, named) is not None for option, named in reading.roles.items()]
    return any(found) or bool(reading.named & set(cells)) if reading.prefix else all(found)


def _header_of(name: str, first: Sequence[str], reading: Reading) -> bool:
    """Whether line 1 of a table is a header; raises DataError where this is not sure."""
    if reading.header is not None:
        return reading.header
    is_known = _names_columns(first, reading)
    numbers = {named for named in reading.roles.values() if named and named[0].isdigit()}
    if is_known != (reading.columns is not None) and not (is_known and numbers & set(first)):
        return is_known
    option, rule = (
        reading.option("columns"),
        "must name the columns of a file without a header, and no other's",
    )
    if is_known and not reading.prefix:
        option, rule = "header", "must say whether line 1 is a header"
    elif not reading.prefix and any(find_column(first, *role) is not None for role in reading.roles.items()):
        option = next(each for each in reading.roles.items() if find_column(first, *each) is None)[0]
        rule = "must name a column of line 1, or `columns` must name the columns"
    raise DataError(rule, place=name, line=1, option=option, value=",".join(first))


def _csv(text: Text, name: str, reading: Reading, sample: Sequence[str]) -> Source:
    """A table of text, with one row a record."""
    delimiter = _delimiter_of(name, sample, reading)
    records = _kept(sample, delimiter, reading)
    DataError.require(records, "must have rows; it has none", place=name)
    after, first = records[0]
    has_header = _header_of(name, first, reading)
    columns = _column_names(name, first, has_header, reading)
    skip = after - 1 if has_header else 0
    words = DELIMITERS.get(delimiter, f'delimiter "{delimiter}"')
    kind = f"csv ({words}, {'line 1 names the columns' if has_header else 'no header'})"
    place_of = {column: f"c{place}" for place, column in enumerate(columns)}
    faults = _comment_faults(text, "c0", reading)
    if has_header:
        repeated = " AND ".join(
            f"coalesce(c{place}, '') = {literal(cell)}" for place, cell in enumerate(first[:2])
        )
        faults.append(("must hold data; it repeats the header", repeated, None))
    _check_last_line(text, name, _LONGEST_RECORD_BYTES)
    quote = '"' if reading.quote is None else reading.quote
    kinds = ", ".join(f"{place}: 'VARCHAR'" for place in place_of.values())
    options = (
        f"columns = {{{kinds}}}, delim = {literal(delimiter)}, quote = {literal(quote)}, escape ="
        f" {literal(quote)}, header = false, skip = {skip}, comment = '',"
        f" max_line_size = {_LONGEST_RECORD_BYTES}, buffer_size = {_BUFFER_BYTES}"
    )

    def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        del connection
        rows = _read_csv(text, scan, options)
        is_comment = f"coalesce(starts_with(c0, {literal(reading.comment)}), false)"
        return f"(SELECT * FROM {rows} WHERE NOT {is_comment})" if reading.comment else rows

    source = Source(
        kind=kind,
        table=table,
        cell=place_of.__getitem__,
        faults=faults,
        line_of=partial(_line_of, text, delimiter, reading, skip, len(columns)),
        name=name,
        columns=columns,
        decimal=reading.decimal or ".",
        text_file=text,
        comment=reading.comment or "",
    )
    if text.has_odd_quotes and quote:  # only then may a quoted cell run over lines
        _check_quotes(source, options, delimiter, is_sure=reading.quote is not None)
    return source


def _column_names(name: str, first: Sequence[str], has_header: bool, reading: Reading) -> list[str]:
    """The names of a table's columns; raises DataError if they do not fit line 1, or repeat."""
    if reading.columns is not None:
        names = list(reading.columns)
    elif has_header:
        names = [cell or str(place) for place, cell in enumerate(first, start=1)]
    else:
        names = [str(place) for place in range(1, len(first) + 1)]
    DataError.require(
        len(names) == len(first),
        f"must name its {len(first)} columns",
        place=name,
        line=1,
        option=reading.option("columns"),
        value=",".join(names),
    )
    DataError.require(any(first), "must name the columns; it is empty", place=name, line=1)
    lowered = [each.lower() for each in names]
    if twice := next((each for each in names if lowered.count(each.lower()) > 1), None):
        raise DataError("names of columns must differ in any case", place=name, line=1, column=twice)
    return names


def _comment_faults(text: Text, cell: str, reading: Reading) -> list[tuple[str, str, str | None]]:
    """The fault of a line that may be a comment or a row, if the text may have one."""
    if reading.comment is not None or not text.signs & {"#", "%"}:
        return []
    rule = 'must say what begins a comment, or "" if nothing does; a line begins with # or %'
    begins = f"coalesce(starts_with({cell}, '#') OR starts_with({cell}, '%'), false)"
    return [(rule, begins, reading.option("comment"))]


def _check_quotes(source: Source, options: str, delimiter: str, is_sure: bool) -> None:
    """Raise DataError for a quoted cell that does not end, or over lines most of which are rows without it.

    Args:
        source: The source.
        options: Options of DuckDB's reader.
        delimiter: Column delimiter.
        is_sure: Whether an option says that cells are quoted.
    """
    assert source.text_file is not None
    width, mark = len(source.columns), literal(delimiter)
    cells = ", ".join(f"coalesce(c{place}, '')" for place in range(width))
    lines = f"string_split(list_aggregate([{cells}], 'string_agg', {mark}), chr(10))"
    fitting = f"list_filter(lines, lambda line: len(string_split(line, {mark})) = {width})"
    with duckdb.connect(config={"threads": 1}) as connection:
        table = _read_csv(source.text_file, Scan(numbered=True, skipping=True), options)
        several = f"SELECT * FROM (SELECT {ROW_NUMBER}, {lines} AS lines FROM {table}) WHERE len(lines) > 1"
        query = f"SELECT min({ROW_NUMBER}) FROM ({several}) WHERE 2 * len({fitting}) > len(lines)"
        [(number,)] = connection.execute(query).fetchall()
        unclosed = connection.execute(
            "SELECT min(line_byte_position) FROM reject_errors WHERE error_type = 'UNQUOTED VALUE' AND"
            " contains(trim(csv_line, chr(10) || chr(13)), chr(10))"
        ).fetchall()[0][0]
    rule = "must say what quotes cells: a quoted cell"
    if number is not None and not is_sure:
        rule += " runs over lines that are rows without the quotes"
        raise DataError(rule, place=source.name, line=source.line_of(number), option="quote")
    if unclosed is not None:
        rule += " does not end"
        raise DataError(rule, place=source.name, line=line_at(source.text_file, unclosed), option="quote")


def _line_of(text: Text, delimiter: str, reading: Reading, skip: int, width: int, number: int) -> int:
    """The line on which a row begins, which DuckDB numbers without lines that are empty or no rows."""
    line = skip + 1
    with text.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        for after, cells in _records(islice(file, skip, None), delimiter, reading):
            number -= len(cells) == width
            if not number:
                newlines = sum(cell.count("\n") for cell in cells)
                return skip + after - 1 - newlines
    return line


def lines_of(text: Text, scan: Scan, skip: int = 0) -> str:
    """The SQL table of the lines of a text: `line`, which is NULL if empty."""
    options = (
        "columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', comment = '',"
        f" header = false, strict_mode = false, max_line_size = {LONGEST_LINE_BYTES},"
        f" buffer_size = {2 * LONGEST_LINE_BYTES}, skip = {skip}"
    )
    return _read_csv(text, scan, options + (", parallel = false" if scan.numbered else ""))


def _numbered(scan: Scan) -> str:
    return f", {ROW_NUMBER}" if scan.numbered else ""


def _words(text: Text, reading: Reading, scan: Scan, keeps_empty: bool = False) -> str:
    """The SQL table of the lines of a text with their `words`, without comments and perhaps empty lines."""
    delimiter = "\\s+"
    if reading.delimiter not in (None, SPACES):
        delimiter = f"\\s*{re.escape(reading.delimiter or '')}\\s*"
    words = _WORDS.format(line="trim(line)", delimiter=literal(delimiter))
    lines = f"SELECT line, coalesce({words}, []) AS words{_numbered(scan)} FROM {lines_of(text, scan)}"
    stays = "true" if keeps_empty else "len(words) > 0"
    if reading.comment:
        stays += f" AND NOT coalesce(starts_with(words[1], {literal(reading.comment)}), false)"
    return f"(SELECT * FROM ({lines}) WHERE {stays})"


def _faults_of_words(text: Text, reading: Reading) -> list[tuple[str, str, str | None]]:
    """The faults of lines of words, unless an option says how words are separated."""
    rule = 'must say what separates words, such as "space": a line holds a comma, a colon, dates or times'
    layout = (
        "false" if reading.delimiter else f"coalesce(regexp_matches(line, {literal(_OTHER_LAYOUT)}), false)"
    )
    return [(rule, layout, reading.option("delimiter")), *_comment_faults(text, "words[1]", reading)]


def _adjacency(text: Text, name: str, reading: Reading, sample: Sequence[str]) -> Source:
    """A user and its items a line; a user may have several lines, or no items."""
    del sample
    _check_last_line(text, name, LONGEST_LINE_BYTES)
    return Source(
        name=name,
        kind="adjacency (the first word of a line is the user)",
        columns=["user", "item"],
        table=lambda _, scan: _words(text, reading, scan),
        cell={"user": "words[1]", "item": "words[2:]"}.__getitem__,
        faults=_faults_of_words(text, reading),
        lists=frozenset({"item"}),
        has_own_columns=True,
        text_file=text,
    )


def _sessions(text: Text, name: str, reading: Reading, sample: Sequence[str]) -> Source:
    """The items of one user a line; the user's id is the number of the line."""
    del sample
    _check_last_line(text, name, LONGEST_LINE_BYTES)
    user = f"{ROW_NUMBER} + {reading.first_line - 1}"

    def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        del connection
        # A line that is left out would move the numbers of the others.
        numbered = Scan(numbered=True, skipping=scan.skipping and scan.numbered)
        return _words(text, reading, numbered, keeps_empty=True)

    return Source(
        name=name,
        kind=f"sessions (items only; line {reading.first_line} is the user {reading.first_line})",
        columns=["user", "item"],
        table=table,
        cell={"user": f"CAST({user} AS BIGINT)", "item": "words"}.__getitem__,
        faults=_faults_of_words(text, reading),
        lists=frozenset({"item"}),
        has_own_columns=True,
        text_file=text,
    )


def _dsstne(text: Text, name: str, reading: Reading, sample: Sequence[str]) -> Source:
    """DSSTNE's text: a line is NAME, a tab, and FEATURE,VALUE:FEATURE,VALUE; values are optional."""
    del sample, reading
    _check_last_line(text, name, LONGEST_LINE_BYTES)
    rest = "rtrim(substr(line, strpos(line, chr(9)) + 1), chr(13))"
    pairs = f"CASE WHEN {rest} = '' THEN [] ELSE string_split({rest}, ':') END"
    value = "CASE WHEN contains(pair, ',') THEN substr(pair, strpos(pair, ',') + 1) END"
    cells = {
        "user": "split_part(line, chr(9), 1)",
        "item": f"list_transform({pairs}, lambda pair: split_part(pair, ',', 1))",
        "value": f"list_transform({pairs}, lambda pair: {value})",
    }
    return Source(
        name=name,
        kind="dsstne (NAME, tab, ITEM,VALUE:ITEM,VALUE)",
        columns=list(cells),
        table=lambda _, scan: f"(SELECT * FROM {lines_of(text, scan)} WHERE trim(line, chr(13)) <> '')",
        cell=cells.__getitem__,
        faults=[("must be a name, a tab and features", "NOT contains(line, chr(9))", None)],
        lists=frozenset({"item", "value"}),
        has_own_columns=True,
        text_file=text,
    )


def _json(text: Text, name: str, reading: Reading, sample: Sequence[str]) -> Source:
    """JSON: one object a line, or one array of objects; a key may hold lists, whose entries are rows."""
    del reading
    is_array = "".join(sample[:2]).lstrip().startswith("[")
    word = "object" if is_array else "line"
    if is_array:
        with text.path.open("rb") as file:
            file.seek(max(0, text.path.stat().st_size - BLOCK_BYTES))
            DataError.require(
                file.read().rstrip().endswith(b"]"),
                "must be one whole JSON array and nothing after it",
                place=name,
            )

    def rows(scan: Scan) -> str:
        if not is_array:
            return lines_of(text, scan)
        options = f"format = 'array', maximum_object_size = {LONGEST_LINE_BYTES}, compression = 'none'"
        table = f"(SELECT json AS line FROM read_json_objects({sql_path(text.path)}, {options}))"
        return f"(SELECT *, row_number() OVER () AS {ROW_NUMBER} FROM {table})" if scan.numbered else table

    def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        del connection
        filled = f"SELECT * FROM {rows(scan)} WHERE coalesce(trim(line, chr(9) || chr(13) || ' '), '') <> ''"
        return f"(SELECT try_cast(line AS JSON) AS object{_numbered(scan)} FROM ({filled}))"

    if not is_array:
        _check_last_line(text, name, LONGEST_LINE_BYTES)
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            query = f"SELECT CAST(line AS VARCHAR) FROM {rows(Scan())} WHERE trim(line) <> '' LIMIT 100"
            objects = [line for (line,) in connection.execute(query).fetchall()]
    except duckdb.Error as error:
        raise DataError(f"must be JSON in UTF-8: {reason_of(error)}", place=name) from error
    keys: dict[str, bool] = {}
    for place, line in enumerate(objects):
        record = _parsed_object(line)
        DataError.require(
            record is not None or place != 0,
            f"{word} 1 must be a JSON object",
            place=name,
            line=None if is_array else 1,
        )
        for key, value in (record or {}).items():
            keys[key] = keys.get(key, False) or isinstance(value, list)
    DataError.require(keys, "must be JSON objects; it has none", place=name)
    lists = frozenset(key for key, is_list in keys.items() if is_list)
    kind, names = "a JSON array" if is_array else "JSON lines", "json_keys(object)"
    return Source(
        name=name,
        kind=kind + (f" ({min(lists)} holds lists)" if lists else ""),
        columns=list(keys),
        table=table,
        cell=lambda key: f"json_extract(object, {literal('/' + key.replace('~', '~0').replace('/', '~1'))})",
        faults=[
            ("must be a JSON object", "coalesce(json_type(object) <> 'OBJECT', true)", None),
            ("must have each key once", f"len({names}) > len(list_distinct({names}))", None),
        ],
        lists=lists,
        is_json=True,
        row=word,
        text_file=text,
    )


def _parsed_object(line: str) -> dict[str, Any] | None:
    """The object in a text, without keys that are no Unicode; None if there is none."""
    try:
        record = json.loads(line, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    return {
        key: value
        for key, value in record.items()
        if key.isprintable() or key.encode("utf-8", "ignore").decode() == key
    }


OPENERS: dict[str, Callable[[Text, str, Reading, Sequence[str]], Source]] = {
    "csv": _csv,
    "adjacency": _adjacency,
    "sessions": _sessions,
    "jsonl": _json,
    "dsstne": _dsstne,
}
"""Opens a text, given its name, how to read it and its first lines."""
