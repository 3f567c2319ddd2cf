"""Opens sources: files of every format, and tables in memory."""

import codecs
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from widenet.data.columns import check_names, quoted
from widenet.data.ingest_arguments import FORMATS
from widenet.data.source import BLOCK_BYTES, ROW_NUMBER, Reading, Scan, Source
from widenet.data.text_formats import DELIMITERS, OPENERS, prepared, sample_of, sql_path
from widenet.errors import DataError, OptionError, reason_of
from widenet.late_imports import installed
from widenet.regular_files import check_regular
from widenet.stores.folders import fetched_sources
from widenet.stores.uri import check_known_scheme, is_uri

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".adj": "adjacency",
    ".adjacency": "adjacency",
    ".sessions": "sessions",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".dsstne": "dsstne",
    ".npz": "npz",
}

_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html)\b", re.IGNORECASE)
"""What servers send in place of a file."""

_ROW_LABELS = re.compile(r"__index_level_\d+__")
"""The name that Arrow gives the labels of pandas' rows if these have none, as after a filter."""


def open_sources(inputs: Sequence[Any], reading: Reading, folder: Path) -> list[Source]:
    """Open sources: paths, patterns of paths, "-" for standard input, open files, and tables in memory.

    Args:
        inputs: The sources.
        reading: How to read files.
        folder: Folder for copies.

    Raises:
        DataError: A file is missing, of another format, or could be read in two ways.
        OptionError: A source is none of these.
    """
    sources: list[Source] = []
    for each in inputs:
        for place, name in _places(each, folder, reading):
            if not isinstance(place, Path):
                sources.append(open_table(place, name))
                continue
            source = open_file(place, name, reading, folder)
            if source.kind.startswith("sessions") and source.text_file is not None:
                reading = replace(reading, first_line=reading.first_line + source.text_file.num_lines)
            sources.append(source)
    kinds = {source.kind.partition(" ")[0] for source in sources}
    given = [] if "csv" in kinds else reading.given_for_tables
    useless = [each for each in given if each != "delimiter" or not kinds & {"adjacency", "sessions"}]
    rule = "is for CSV and other tables of text; no source is one"
    OptionError.require(not useless, rule, option=next(iter(useless), None))
    return sources


def open_source(value: Any, reading: Reading, folder: Path) -> Source:
    """Open a single source; raises as `open_sources` does."""
    number = len(_places(value, folder, reading)) if isinstance(value, Path) else 1
    OptionError.require(number <= 1, f"must be one file; it matches {number:,}", place=value)
    return open_sources([value], reading, folder)[0]


def open_file(path: Path, name: str, reading: Reading, folder: Path) -> Source:
    """Open a file in the named format, or in the one that its suffix, first bytes or first line show."""
    check_file(path, name)
    with path.open("rb") as file:
        head = file.read(64).removeprefix(codecs.BOM_UTF8)
    DataError.require(head, "must have rows; the file is empty", place=name)
    kind = reading.format or _format_by_name(path, head)
    if kind == "parquet":
        return _parquet(path, name)
    if kind == "npz":
        return _npz(path, name)
    text = prepared(path, name, folder)
    sample = sample_of(text)
    DataError.require(
        not _PAGE.match("".join(sample[:2]).encode(errors="replace")),
        "must be a table or a text; it is an HTML page",
        place=name,
    )
    kind = kind or _format_by_content(sample, name, reading)
    return OPENERS[kind](text, reading, sample)


def check_file(path: Path, name: str) -> None:
    """Raise DataError unless a path is that of a file."""
    check_regular(path)
    DataError.require(path.is_file(), "must be a file" if path.exists() else "does not exist", place=name)


def _places(value: Any, folder: Path, reading: Reading) -> list[tuple[Any, str]]:
    """List the paths or the table of a source, each with its name in messages."""
    option = reading.prefix.rstrip("_")
    if isinstance(value, str | Path) and str(value) == "-":
        path = folder / "standard-input"
        OptionError.require(
            not path.exists(), '"-" is standard input, which can be read only once; got it twice.'
        )
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return [(path, "standard input")]
    if hasattr(value, "read"):
        path = folder / f"{len(list(folder.iterdir()))}.open"
        with path.open("wb") as file:
            while content := value.read(BLOCK_BYTES):
                file.write(content.encode() if isinstance(content, str) else content)
        return [(path, "the open file")]
    if is_in_memory(value):
        return [(value, f"the table of {option}" if option else "the table")]
    if not isinstance(value, str | Path):
        kinds = "a path, an open file, a table, a SciPy matrix or a dictionary of columns"
        raise OptionError(f"{option or 'a source'} must be {kinds}; got {type(value).__name__}.")
    if is_uri(value):
        return [(copy, str(uri)) for copy, uri in fetched_sources(value)]
    check_known_scheme(f"`{option}`" if option else "a source", value)
    return [(path, str(path)) for path in matching_paths(Path(value))]


def matching_paths(path: Path) -> list[Path]:
    """Return the path itself if it exists or is not a pattern; otherwise the paths that match it.

    Numbers in names order them by value, so that part-10 follows part-9.

    Raises:
        DataError: No path matches.
    """
    if path.exists() or not set(str(path)) & set("*?["):
        return [path]
    root = Path(path.anchor)
    matches = sorted(root.glob(str(path.relative_to(root))), key=_by_numbers)
    DataError.require(matches, "no file matches the pattern", place=path)
    return matches


def _by_numbers(path: Path) -> tuple[list[str | int], str]:
    """Sort key: the texts and the numbers of a path, which alternate."""
    pieces = re.split("([0-9]+)", str(path))
    return [int(piece) if place % 2 else piece for place, piece in enumerate(pieces)], str(path)


def _format_by_name(path: Path, head: bytes) -> str | None:
    name = re.sub(r"\.(gz|zst|zstd)$", "", path.name.lower())
    for suffix, kind in _SUFFIXES.items():
        if name.endswith(suffix):
            return kind
    if head.startswith(b"PAR1"):
        return "parquet"
    return "npz" if head.startswith(b"PK\x03\x04") and b".npy" in head else None


def _format_by_content(sample: Sequence[str], name: str, reading: Reading) -> str:
    """Recognize JSON, and tables with a usual delimiter."""
    first = next((line.lstrip() for line in sample if line.strip()), "")
    if first.startswith("{") or re.match(r"\[\s*(\{|$)", first):
        return "jsonl"
    if reading.given_for_tables or any(delimiter in first for delimiter in DELIMITERS):
        return "csv"
    rule = f"must name the format, one of {', '.join(FORMATS)}; line 1 is {first.strip()[:60]!r}"
    raise DataError(rule, place=name, option=reading.option("format"))


def _parquet(path: Path, name: str) -> Source:
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"must be a Parquet file: {reason_of(error)}", place=name) from error

    def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        del connection
        read = f"read_parquet({sql_path(path)}, hive_partitioning = false, binary_as_string = true"
        if not scan.numbered:
            return f"{read})"
        columns = f"* EXCLUDE (file_row_number), file_row_number + 1 AS {ROW_NUMBER}"
        return f"(SELECT {columns} FROM {read}, file_row_number = true))"

    unread = pa.types.is_nested, pa.types.is_fixed_size_binary
    return Source(name=name, kind="Parquet", table=table, row="row", **_columns_of(schema, name, unread))


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def _columns_of(
    schema: pa.Schema, place: str, unread: Sequence[Callable[[pa.DataType], bool]]
) -> dict[str, Any]:
    """The columns of a schema by their types, without cells or entries of lists that are not read."""
    check_names(place, schema.names)
    types = {
        each.name: each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema
    }
    is_list = {name: any(is_such(kind) for is_such in _LISTS) for name, kind in types.items()}
    entries = {name: kind.value_type if is_list[name] else kind for name, kind in types.items()}
    entries = {name: kind for name, kind in entries.items() if not any(is_such(kind) for is_such in unread)}
    return {
        "columns": list(entries),
        "lists": frozenset(name for name in entries if is_list[name]),
        "floats": frozenset(name for name, kind in entries.items() if pa.types.is_floating(kind)),
        "integers": frozenset(name for name, kind in entries.items() if pa.types.is_integer(kind)),
    }


def _in_arrow(name: str, kind: str, arrow: pa.Table, **more: Any) -> Source:
    def table(connection: duckdb.DuckDBPyConnection, scan: Scan) -> str:
        view = f"memory {id(arrow)}"
        connection.register(view, arrow)
        columns = f"*, row_number() OVER () AS {ROW_NUMBER}"
        return f"(SELECT {columns} FROM {quoted(view)})" if scan.numbered else quoted(view)

    columns = _columns_of(arrow.schema, name, (pa.types.is_nested, *_BYTES))
    return Source(name=name, kind=kind, table=table, row="row", **columns | more)


def is_in_memory(value: object) -> bool:
    """Whether a value is an open file, a table, a SciPy matrix or a dictionary of columns."""
    return isinstance(value, Mapping) or any(
        hasattr(value, name) for name in ("read", "__arrow_c_stream__", "tocsr")
    )


def open_table(value: Any, name: str) -> Source:
    """Open a table, a dictionary of columns or a matrix as a source.

    A matrix has the columns user, item and value: row number, column number and stored value.

    Raises:
        DataError: The value is none of these.
    """
    if hasattr(value, "tocsr"):
        return _matrix(value, name)
    try:
        if isinstance(value, Mapping):
            value = {str(name): pa.array(each, from_pandas=True) for name, each in value.items()}
        arrow = pa.table(value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"must be columns of one length, each of one type: {error}", place=name) from error
    arrow = arrow.select([each for each in arrow.column_names if not _ROW_LABELS.fullmatch(each)])
    return _in_arrow(name, "a table", arrow)


def _npz(path: Path, name: str) -> Source:
    """A matrix in a file of `scipy.sparse.save_npz`; pickled objects are never read."""
    with installed("scipy"):
        import scipy.sparse
    try:
        with path.open("rb") as file:  # which SciPy leaves open if it is no zip
            matrix = scipy.sparse.load_npz(file)
        return _matrix(matrix, name)
    except Exception as error:
        if isinstance(error, MemoryError):
            raise
        raise DataError(
            f"must be a sparse matrix of scipy.sparse.save_npz: {reason_of(error)}", place=name
        ) from error


def _matrix(matrix: Any, name: str) -> Source:
    """A SciPy matrix, whose repeated entries add up; a row without entries is a user without items."""
    if matrix.format in ("csr", "csc", "bsr"):  # SciPy's own code does not look whether offsets are right
        matrix.check_format(full_check=True)
    csr = matrix.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    numbers = (
        csr.data.astype(np.float64)
        if csr.data.dtype.kind == "b" or csr.data.dtype == np.float16
        else csr.data
    )
    DataError.require(
        numbers.dtype.kind in "iuf" and numbers.dtype.itemsize <= 8,
        "must hold real numbers of at most 64 bits",
        place=name,
        value=str(csr.data.dtype),
    )
    items, values = (
        pa.array(each) for each in (csr.indices, numbers.astype(numbers.dtype.newbyteorder("=")))
    )
    offsets = pa.array(csr.indptr.astype(np.int64))
    arrow = pa.table(
        {
            "user": np.arange(csr.shape[0]),
            "item": pa.LargeListArray.from_arrays(offsets, items),
            "value": pa.LargeListArray.from_arrays(offsets, values),
        }
    )
    return _in_arrow(name, f"a matrix of {csr.shape[0]:,} rows", arrow, has_own_columns=True)
