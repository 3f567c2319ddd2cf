"""Readers of text: tables, lines of words, DSSTNE's text and JSON, each as SQL in DuckDB.

Options, the format itself or a header with known names say what a file holds. Where they leave two readings
that give different data, the file is refused, and the error names the option that decides.
"""

import codecs
import csv
import gzip
import io
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa

from widenet.data.columns import check_names, find_column, literal, quoted
from widenet.data.source import BLOCK_BYTES, ROW_NUMBER, SPACES, Fault, Reading, Scan, Source, Text, line_at
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

_OBJECT, _REPEATED = '"the object"', '"repeats the header"'
"""Columns of the tables of JSON and of CSV that `Fault` reads."""

_OTHER_LAYOUT = (
    r"[,:]|(^|\s)[0-9]{4}-[0-9]{2}-[0-9]{2}|"
    r"^(\S+\s+)?(\S+\s+(9[0-9]{8}|1[0-9]{9}|1[0-9]{12}|[0-9]+\.[0-9]+)\s*)+$"
)
"""What lines of words do not hold, unless an option says how words are separated: signs of other layouts,
dates, and a time or a fraction after each item.
"""


def prepared(path: Path, name: str, folder: Path) -> Text:
    """Survey a text, and copy it if it is compressed or its lines end in several ways.

    DuckDB takes zeros after a gzip stream for damage, and drops rows where line ends are mixed.

    Raises:
        DataError: The text holds NUL, or what is compressed is cut off or damaged.
    """
    copy = folder / f"{len(list(folder.iterdir()))}.text"
    with path.open("rb") as file:
        head = file.read(4)
    if packed := next((opened for magic, opened in _COMPRESSIONS.items() if head.startswith(magic)), None):
        try:
            with packed(path) as file, copy.open("wb") as plain:
                shutil.copyfileobj(file, plain, BLOCK_BYTES)
        except (EOFError, OSError, zlib.error) as error:
            if getattr(error, "errno", None) is not None:  # the disk failed
                raise
            raise DataError(f"must be a complete compressed file: {reason_of(error)}", place=name) from error
        path = copy
    num_lf, num_cr, num_crlf, has_quotes, last = 0, 0, 0, False, b""
    with path.open("rb") as file:
        for block in _blocks(file):
            if b"\0" in block:
                line = num_lf + block[: block.index(b"\0")].count(b"\n") + 1
                raise DataError("must be text in UTF-8 without NUL", place=name, line=line)
            num_lf += block.count(b"\n")
            num_cr += block.count(b"\r")
            num_crlf += block.count(b"\r\n")
            has_quotes |= b'"' in block
            last = block or last
    if num_cr and not num_cr == num_crlf == num_lf:
        even = folder / f"{copy.name}.even"
        with path.open("rb") as file, even.open("wb") as target:
            for block in _blocks(file):
                target.write(block.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        path = even
    num_lines = num_lf + num_cr - num_crlf + (not last.endswith((b"\n", b"\r")))
    return Text(path, name, num_lines, has_quotes)


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


def _read_csv(text: Text, scan: Scan, options: str, longest: int = LONGEST_LINE_BYTES) -> str:
    """The SQL table of a text; rows are numbered in its order, and those that are left out are recorded.

    One thread numbers rows in order; with `parallel = false`, DuckDB would not record a cell without end.

    Raises:
        DataError: DuckDB would skip the last line, because it is longer than a buffer.
    """
    with text.path.open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - longest - 2))
        tail = file.read().rstrip(b"\r\n")
    rule = f"the last line must have at most {longest:,} bytes"
    DataError.require(len(tail) <= longest or b"\n" in tail, rule, place=text.name)
    options += (
        f", max_line_size = {longest}, header = false, comment = '', auto_detect = false, compression ="
        " 'none', hive_partitioning = false"
    )
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
        escapechar=reading.escape or None,
        doublequote=not reading.escape,
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
    if reading.prefix and not any(delimiter in sample[0] for delimiter in known):
        known = list(DELIMITERS)  # commas may separate columns although the interactions have them in numbers
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
    return any(found) if reading.prefix else all(found)


def _has_header(name: str, first: Sequence[str], reading: Reading) -> bool:
    """Whether line 1 of a table is a header; raises DataError where this is not sure."""
    if reading.header is not None:
        return reading.header
    is_known = _names_columns(first, reading)
    numbers = {named for named in reading.roles.values() if named and named[0].isdigit()}
    if is_known != (reading.columns is not None) and not (is_known and numbers & set(first)):
        return is_known
    option, rule = reading.option("columns"), "must name the columns, unless line 1 does"
    if is_known and not reading.prefix:
        option, rule = "header", "must say whether line 1 is a header"
    missing = [option for option, named in reading.roles.items() if find_column(first, option, named) is None]
    if not reading.prefix and reading.columns is None and 0 < len(missing) < len(reading.roles):
        option, rule = missing[0], "must name a column of line 1, or `columns` must name all"
    raise DataError(rule, place=name, line=1, option=option, value=",".join(first))


def _csv(text: Text, reading: Reading, sample: Sequence[str]) -> Source:
    """A table of text, with one row a record."""
    delimiter = _delimiter_of(text.name, sample, reading)
    records = _kept(sample, delimiter, reading)
    DataError.require(records, "must have rows; it has none", place=text.name)
    after, first = records[0]
    has_header = _has_header(text.name, first, reading)
    columns = _column_names(text.name, first, has_header, reading)
    skip = after - 1 if has_header else 0
    words = DELIMITERS.get(delimiter, f'delimiter "{delimiter}"')
    faults = _comment_faults(quoted(columns[0]), reading)
    repeated = "false"
    if has_header:
        cells = zip(columns[:2], first, strict=False)
        repeated = " AND ".join(f"coalesce({quoted(name)}, '') = {literal(cell)}" for name, cell in cells)
        faults.append(Fault("must hold data; it repeats the header", _REPEATED))
    quote = '"' if reading.quote is None else reading.quote
    kinds = ", ".join(f"{literal(column)}: 'VARCHAR'" for column in columns)
    options = (
        f"columns = {{{kinds}}}, delim = {literal(delimiter)}, quote = {literal(quote)},"
        f" escape = {literal(reading.escape or quote)}, skip = {skip}, buffer_size = {_BUFFER_BYTES}"
    )

    def table(_: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        rows = _read_csv(text, scan, options, _LONGEST_RECORD_BYTES)
        is_comment = f"coalesce(starts_with({quoted(columns[0])}, {literal(reading.comment)}), false)"
        stays = f"NOT {is_comment}" if reading.comment else "true"
        return f"(SELECT *, {repeated} AS {_REPEATED} FROM {rows} WHERE {stays})"

    source = Source(
        name=text.name,
        kind=f"csv ({words}, {'line 1 names the columns' if has_header else 'no header'})",
        columns=columns,
        table=table,
        own_faults=faults,
        decimal="." if reading.prefix and delimiter == reading.decimal else reading.decimal or ".",
        text_file=text,
        line_of=partial(_line_of, text, delimiter, reading, skip, len(columns)),
        comment=reading.comment or "",
    )
    if text.has_quotes and quote:
        _check_quotes(source, text, delimiter, is_sure=reading.quote is not None)
    return source


def _column_names(name: str, first: Sequence[str], has_header: bool, reading: Reading) -> list[str]:
    """The names of a table's columns; raises DataError if they do not fit line 1, or repeat."""
    names = [(has_header and cell) or str(place) for place, cell in enumerate(first, start=1)]
    if reading.columns is not None:
        names = list(reading.columns)
    DataError.require(
        len(names) == len(first),
        f"must name its {len(first)} columns",
        place=name,
        line=1,
        option=reading.option("columns"),
        value=",".join(names),
    )
    DataError.require(any(first), "must name the columns; it is empty", place=name, line=1)
    check_names(name, names)
    return names


def _comment_faults(cell: str, reading: Reading) -> list[Fault]:
    """The fault of a line that may be a comment or a row, unless an option decides."""
    rule = 'must say what begins a comment, or "" if nothing does; a line begins with # or %'
    begins = f"coalesce(starts_with({cell}, '#') OR starts_with({cell}, '%'), false)"
    return [Fault(rule, begins, option="comment")] if reading.comment is None else []


def _check_quotes(source: Source, text: Text, delimiter: str, is_sure: bool) -> None:
    """Raise DataError for a quoted cell that does not end, or over lines most of which are rows without it.

    Args:
        source: The source.
        text: Its text.
        delimiter: Column delimiter.
        is_sure: Whether an option says that cells are quoted.
    """
    rule = (
        "must say what quotes cells: a quoted cell does not end, or runs over lines that are rows without it"
    )
    mark, scan = literal(delimiter), Scan(numbered=True, skipping=True)
    cells = ", ".join(f"coalesce({quoted(column)}, '')" for column in source.columns)
    lines = f"string_split(list_aggregate([{cells}], 'string_agg', {mark}), chr(10))"
    fitting = f"list_filter(lines, lambda line: len(string_split(line, {mark})) = {len(source.columns)})"
    with duckdb.connect(config={"threads": 1}) as connection:
        odd = "strlen(line) - strlen(replace(line, '\"', ''))"
        only_then = f"SELECT 1 FROM {lines_of(text, Scan(skipping=True))} WHERE ({odd}) % 2 = 1 LIMIT 1"
        if not connection.execute(only_then).fetchall():
            return
        rows = f"SELECT {ROW_NUMBER} AS number, {lines} AS lines FROM {source.table(connection, scan)}"
        several = f"SELECT min(number) FROM ({rows}) WHERE len(lines) > 1 AND 2 * len({fitting}) > len(lines)"
        [(number,)] = connection.execute(several).fetchall()
        [(unclosed,)] = connection.execute(
            "SELECT min(line_byte_position) FROM reject_errors WHERE error_type = 'UNQUOTED VALUE' AND"
            " contains(trim(csv_line, chr(10) || chr(13)), chr(10))"
        ).fetchall()
    if number is not None and not is_sure:
        raise DataError(rule, place=source.name, line=source.line_of(number), option="quote")
    if unclosed is not None:
        raise DataError(rule, place=source.name, line=line_at(text, unclosed), option="quote")


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
        "columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', strict_mode = false,"
        f" buffer_size = {2 * LONGEST_LINE_BYTES}, skip = {skip}"
    )
    return _read_csv(text, scan, options + (", parallel = false" if scan.numbered else ""))


def _words(text: Text, reading: Reading, sample: Sequence[str], has_users: bool) -> Source:
    """Lines of words: a user and its items, or the items of a user whose id is the number of the line."""
    del sample
    delimiter = "\\s+"
    if reading.delimiter not in (None, SPACES):
        delimiter = f"\\s*{re.escape(reading.delimiter or '')}\\s*"
    pieces = f"string_split_regex(trim(line), {literal(delimiter)})"
    words = f"coalesce(list_filter({pieces}, lambda word: word <> ''), []) AS words"
    user, item, stays = "words[1]", "words[2:]", "len(words) > 0"
    kind = "adjacency (the first word of a line is the user)"
    if not has_users:
        user, item, stays = f"CAST({ROW_NUMBER} + {reading.first_line - 1} AS BIGINT)", "words", "true"
        kind = f"sessions (items only; line {reading.first_line} is the user {reading.first_line})"
    if reading.comment:
        stays += f" AND NOT coalesce(starts_with(words[1], {literal(reading.comment)}), false)"
    layout = f"coalesce(regexp_matches(line, {literal(_OTHER_LAYOUT)}), false)"
    rule = 'must say what separates words, such as "space": a line holds a comma, a colon, dates or times'
    faults = [] if reading.delimiter else [Fault(rule, layout, option="delimiter")]

    def table(_: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        # A session that is left out would move the numbers of the others.
        own = scan if has_users else Scan(numbered=True, skipping=scan.skipping and scan.numbered)
        lines = f"SELECT *, {words} FROM {lines_of(text, own)}"
        return f'(SELECT *, {user} AS "user", {item} AS item FROM ({lines}) WHERE {stays})'

    return Source(
        name=text.name,
        kind=kind,
        columns=["user", "item"],
        table=table,
        own_faults=[*faults, *_comment_faults("words[1]", reading)],
        lists=frozenset({"item"}),
        has_own_columns=True,
        text_file=text,
    )


def _dsstne(text: Text, reading: Reading, sample: Sequence[str]) -> Source:
    """DSSTNE's text: a line is NAME, a tab, and FEATURE,VALUE:FEATURE,VALUE; values are optional."""
    del sample, reading
    rest = "rtrim(substr(line, strpos(line, chr(9)) + 1), chr(13))"
    pairs = f"CASE WHEN {rest} = '' THEN [] ELSE string_split({rest}, ':') END"
    value = "CASE WHEN contains(pair, ',') THEN substr(pair, strpos(pair, ',') + 1) END"
    cells = (
        'split_part(line, chr(9), 1) AS "user",'
        f" list_transform({pairs}, lambda pair: split_part(pair, ',', 1)) AS item,"
        f" list_transform({pairs}, lambda pair: {value}) AS value"
    )

    def table(_: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        return f"(SELECT *, {cells} FROM {lines_of(text, scan)} WHERE trim(line, chr(13)) <> '')"

    return Source(
        name=text.name,
        kind="dsstne (NAME, tab, ITEM,VALUE:ITEM,VALUE)",
        columns=["user", "item", "value"],
        table=table,
        own_faults=[Fault("must be a name, a tab and features", "NOT contains(line, chr(9))")],
        lists=frozenset({"item", "value"}),
        has_own_columns=True,
        text_file=text,
    )


def _json(text: Text, reading: Reading, sample: Sequence[str]) -> Source:
    """JSON: one object a line, or one array of objects; a key may hold lists, whose entries are rows."""
    del reading
    is_array = "".join(sample[:2]).lstrip().startswith("[")
    if is_array:
        with text.path.open("rb") as file:
            file.seek(max(0, text.path.stat().st_size - BLOCK_BYTES))
            is_whole = file.read().rstrip().endswith(b"]")
        rule = "must be one whole JSON array and nothing after it"
        DataError.require(is_whole, rule, place=text.name)

    def objects(scan: Scan) -> str:
        if is_array:
            options = f"format = 'array', maximum_object_size = {LONGEST_LINE_BYTES}, compression = 'none'"
            rows = f"read_json_objects({sql_path(text.path)}, {options})"
            rows = f"(SELECT json AS line, row_number() OVER () AS {ROW_NUMBER} FROM {rows})"
        else:
            rows = lines_of(text, scan)
        filled = "coalesce(trim(line, chr(9) || chr(13) || ' '), '') <> ''"
        return f"(SELECT *, try_cast(line AS JSON) AS {_OBJECT} FROM {rows} WHERE {filled})"

    first = f"SELECT {_OBJECT} FROM {objects(Scan(skipping=True))} LIMIT 100"
    keys = f"SELECT key, bool_or(type = 'ARRAY') FROM ({first}), json_each({_OBJECT}) WHERE key IS NOT NULL"
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            found = dict(connection.execute(f"{keys} GROUP BY key ORDER BY min(id), key").fetchall())
    except duckdb.Error as error:
        raise DataError(f"must be JSON in UTF-8: {reason_of(error)}", place=text.name) from error
    DataError.require(found, "must have a JSON object a line, or be an array of objects", place=text.name)
    check_names(text.name, list(found))
    lists = frozenset(key for key, is_list in found.items() if is_list)
    cells = []
    for key in found:
        cell = f"json_extract({_OBJECT}, {literal('/' + key.replace('~', '~0').replace('/', '~1'))})"
        if key in lists:
            several = f"WHEN 'ARRAY' THEN json_extract({cell}, '$[*]') WHEN 'NULL' THEN NULL"
            cell = f"CASE json_type({cell}) {several} ELSE [{cell}] END"
        cells.append(f"{cell} AS {quoted(key)}")

    def table(_: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        numbered = f", {ROW_NUMBER}" if scan.numbered else ""
        return f"(SELECT {_OBJECT}, {', '.join(cells)}{numbered} FROM {objects(scan)})"

    names = f"json_keys({_OBJECT})"
    return Source(
        name=text.name,
        kind=("a JSON array" if is_array else "JSON lines")
        + (f" ({min(lists)} holds lists)" if lists else ""),
        columns=list(found),
        table=table,
        own_faults=[
            Fault("must be a JSON object", f"coalesce(json_type({_OBJECT}) <> 'OBJECT', true)"),
            Fault("must have each key once", f"len({names}) > len(list_distinct({names}))"),
        ],
        lists=lists,
        is_json=True,
        row="object" if is_array else "line",
        text_file=text,
    )


OPENERS: dict[str, Callable[[Text, Reading, Sequence[str]], Source]] = {
    "csv": _csv,
    "adjacency": partial(_words, has_users=True),
    "sessions": partial(_words, has_users=False),
    "jsonl": _json,
    "dsstne": _dsstne,
}
"""Opens a text, given how to read it and its first lines."""
