"""CSV and its kin (tabs, semicolons, bars): the first line names the columns; `.gz` is read as it is."""

import csv
import gzip
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, broken
from widenet.errors import DataError

SUFFIXES: tuple[str, ...] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
EMPTY_USERS = False
DELIMITERS = (",", "\t", ";", "|")


def column_names(path: Path) -> list[str]:
    """The names in the first line."""
    with _opened(path) as file:
        names = next(csv.reader(file, delimiter=_delimiter(path)), [])
    if not any(names):
        raise DataError(f"{path}: line 1: must name the columns; it is empty.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f'{path}: line 1: column names must differ; "{twice}" stands twice. Rename one.')
    return names


def scan(path: Path) -> str:
    """The SQL table of all columns, as text."""
    columns = ", ".join(f"{sql.literal(name)}: 'VARCHAR'" for name in column_names(path))
    options = "header = true, auto_detect = false, quote = '\"', escape = '\"'"
    return sql.read("read_csv", path, f"columns = {{{columns}}}, delim = {sql.literal(_delimiter(path))}, {options}")


def first_mistake(path: Path, columns: Columns) -> str | None:
    """The first line that breaks a rule, as a sentence; None when every line keeps them."""
    names = column_names(path)
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=_delimiter(path), strict=True)
        line = 1
        try:
            for row in reader:
                if line > 1 and row and (mistake := _mistake(row, names, columns)):
                    return f"{path}: line {line}: {mistake}"
                line = reader.line_num + 1
        except csv.Error as error:
            return f"{path}: line {line}: must be CSV; {error}. Close the quotes, or remove them."
    return None


def _mistake(row: list[str], names: list[str], columns: Columns) -> str | None:
    if len(row) != len(names):
        return f"must have {len(names)} columns; got {len(row)}. Quote text that holds the delimiter."
    if any("\ufffd" in text for text in row):
        return "must be UTF-8 text. Convert the file, for example with `iconv -t utf-8`."
    cells = dict(zip(names, row, strict=True))
    holds: dict[str, Callable[[str], bool]] = {"user": bool, "item": bool, "value": _is_number, "time": _is_time}
    for role, (name, _) in columns.expressions().items():
        if not holds[role](cells[name]):
            return broken(name, role, cells[name])
    return None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and abs(float(text)) <= sql.LARGEST_FLOAT32
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    try:
        return _is_number(text) or bool(datetime.fromisoformat(text.strip()))
    except ValueError:
        return False


def _delimiter(path: Path) -> str:
    with _opened(path) as file:
        first = file.readline()
    return max(DELIMITERS, key=first.count)


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        yield file
