"""The table of formats, and the recognition of a file's format."""

import json
import re
from importlib import import_module
from pathlib import Path

from widenet.data import formats
from widenet.data.formats.csv import DELIMITERS
from widenet.data.formats.source import Format, Reading, Source
from widenet.data.formats.text import COMPRESSED, TextFile
from widenet.errors import DataError, OptionError, nearest

FORMATS: dict[str, Format] = {
    name: import_module(f"{formats.__name__}.{name}").FORMAT for name in formats.FORMATS
}

_HEAD_BYTES = 64
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html)\b", re.IGNORECASE)
"""What servers send in place of a file."""
_NUMBER = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"
_DSSTNE = re.compile(rf"[^\t]+\t[^\t,:]+,{_NUMBER}(:|\s*$)")
_ARRAY = re.compile(r"\s*\[\s*(\{|$)")
_UNSURE = re.compile(r"[^\t]+\t[^\t,:]*:[^\t]*$")
"""First line of a table with tabs, or of DSSTNE's text without values."""


def opened(path: Path, reading: Reading | None = None, name: str | None = None) -> Source:
    """Open a file in the named format, or in the one that its suffix, first bytes or first line show.

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
        raise DataError(f"{name}: the file does not exist.")
    if path.is_dir():
        raise DataError(f"{name}: must be a file; it is a directory.")
    if not path.is_file():
        raise DataError(f"{name}: must be a file, because it is read twice; it is a pipe or a device.")
    if path.stat().st_size == 0:
        raise DataError(f"{name}: must have rows; the file is empty.")
    format_name = reading.format or _by_suffix(path) or _by_first_bytes(path)
    format_name = format_name or _by_content(path, name, reading)
    with path.open("rb") as file:
        if FORMATS[format_name].is_text and _PAGE.match(file.read(_HEAD_BYTES)):
            raise DataError("must be a table or a text; it is an HTML page", place=name)
    return FORMATS[format_name].opened(path, name, reading)


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
    """Recognize JSON, DSSTNE's text and CSV; raises DataError where a line may mean several things."""
    first = next((line for line in TextFile(path).sample() if line.strip()), "")
    if reading.delimiter or reading.columns or reading.has_header is not None:
        return "jsonl" if _ARRAY.match(first) or _is_json_object(first) else "csv"
    if first.lstrip().startswith(("{", "[")):
        return "jsonl"
    if _DSSTNE.match(first):
        return "dsstne"
    if not _UNSURE.match(first) and any(delimiter in first for delimiter in DELIMITERS):
        return "csv"
    rule = f"must name the format, one of {', '.join(FORMATS)}: the first line does not tell it"
    raise DataError(rule, place=name, option=f"{reading.prefix}format")


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line, parse_int=str), dict)
    except (ValueError, RecursionError):
        return False
