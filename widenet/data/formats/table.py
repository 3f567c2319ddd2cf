"""The table of formats, and the recognition of a file's format."""

import json
import re
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from widenet.data import formats
from widenet.data.formats.csv import DELIMITERS
from widenet.data.formats.foreign import foreign_kind
from widenet.data.formats.guesses import begins_with_users, table_like
from widenet.data.formats.source import Format, Reading, Source
from widenet.data.formats.text import COMPRESSED, TextFile
from widenet.errors import DataError, OptionError, nearest

FORMATS: dict[str, Format] = {
    name: import_module(f"{formats.__name__}.{name}").FORMAT for name in formats.FORMATS
}

_HEAD_BYTES = 64
_NUMBER = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"
_DSSTNE = re.compile(rf"[^\t]+\t[^\t,:]+,{_NUMBER}(:|\s*$)")
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")
_UNSURE = re.compile(r"[^\t]+\t[^\t,:]*:[^\t]*$")
_FOREIGN = re.compile(r"%%MatrixMarket|\S+( \d+:\S+)+\s*$")
"""First line of MatrixMarket or libsvm."""
_EXTREME = re.compile(r"\s*\d+\s+\d+\s+\d+\s*\n\s*[\d,]*(\s+\d+:\S+)+\s*$")
"""First two lines of a file of extreme classification."""


def opened(path: Path, reading: Reading | None = None, name: str | None = None) -> Source:
    """Open a file in the named format, or in the one that its suffix, first bytes or first lines suggest.

    Args:
        path: The file.
        reading: How to read it.
        name: Name in messages; None means the path.

    Raises:
        DataError: The file is missing, a directory, empty, or not of its format.
        OptionError: The format is unknown.
    """
    name, reading = name or str(path), reading or Reading()
    if reading.format is not None and reading.format not in FORMATS:
        rule = f"{reading.option('format')} must be one of {', '.join(FORMATS)}"
        raise OptionError(f'{rule}; got "{reading.format}".{nearest(reading.format, FORMATS)}')
    if not path.exists():
        raise DataError(f"{name}: the file does not exist. Check the path.")
    if path.is_dir():
        raise DataError(f"{name}: must be a file; it is a directory. Name the files in it.")
    if not path.is_file():
        raise DataError(
            f"{name}: must be a file, because it is read more than once; it is a pipe or a device. Pipe"
            " it in, with - as the source."
        )
    if path.stat().st_size == 0:
        raise DataError(f"{name}: must have rows; the file is empty.")
    format_name = reading.format or _by_suffix(path) or _by_first_bytes(path)
    if (format_name is None or FORMATS[format_name].is_text) and (
        foreign := foreign_kind(TextFile(path), reading.prefix)
    ):
        kind, remedy = foreign
        raise DataError(f"{name}: must be one of {', '.join(FORMATS)}; it looks like {kind}. {remedy}")
    return FORMATS[format_name or _by_content(path, name, reading)].opened(path, name, reading)


def _by_suffix(path: Path) -> str | None:
    plain = path.name.lower()
    is_compressed = plain.endswith(COMPRESSED)
    for ending in COMPRESSED:
        plain = plain.removesuffix(ending)
    return next(
        (
            name
            for name, known in FORMATS.items()
            if plain.endswith(known.suffixes) and (known.is_text or not is_compressed)
        ),
        None,
    )


def _by_first_bytes(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return next((name for name, known in FORMATS.items() if known.begins and known.begins(head)), None)


def _by_content(path: Path, name: str, reading: Reading) -> str:
    lines, option = TextFile(path).sample(), partial(reading.option, "format")
    first = next((line for line in lines if line.strip()), "")
    if reading.delimiter or reading.columns or reading.has_header is not None:
        return "jsonl" if _ARRAY.match(first) or _is_json_object(first) else "csv"
    if first.lstrip().startswith(("{", "[")):
        return "jsonl"
    if _DSSTNE.match(first):
        return "dsstne"
    if _EXTREME.match("".join(lines[:2])):
        raise DataError(
            f"{name}: line 1 has three numbers, as files of extreme classification do. Use `widenet data"
            " extreme`."
        )
    if _FOREIGN.match(first):
        known = ", ".join(FORMATS)
        raise DataError(
            f"{name}: line 1 is in another format (libsvm or MatrixMarket). Convert it to one of {known}."
        )
    if _UNSURE.match(first):
        raise DataError(
            f"{name}: line 1 may be a table with tabs, or DSSTNE's text without values. Use {option('csv')}"
            f" or {option('dsstne')}."
        )
    if any(delimiter in first for delimiter in DELIMITERS):
        return "csv"
    if why := table_like(lines):
        raise DataError(
            f"{name}: its lines look like a table: {why}. Use {reading.option('delimiter', 'space')}."
        )
    if len(lines) > 1 and _looks_like_ratings([line.split() for line in lines if line.strip()]):
        doubt = "its lines may be a user, an item and numbers, or a user and its items"
        raise DataError(
            f"{name}: {doubt}. Use {reading.option('delimiter', 'space')} or {option('adjacency')}."
        )
    if reading.of_sequences:
        raise DataError(
            f"{name}: a line may be a user's sequence, or a user and its items. Use {option('sessions')} or"
            f" {option('adjacency')}."
        )
    if not begins_with_users(lines):
        doubt = "a line may be a user and its items, or a session of items alone"
        raise DataError(f"{name}: {doubt}. Use {option('adjacency')} or {option('sessions')}.")
    return "adjacency"


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line, parse_int=str), dict)
    except (ValueError, RecursionError):
        return False


def _looks_like_ratings(rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows look like a table of interactions rather than lists of items.

    All rows have the same number of words, 3 or more, and a user has several rows.
    """
    widths = {len(row) for row in rows}
    return len(widths) == 1 and min(widths) > 2 and len({row[0] for row in rows}) < len(rows)
