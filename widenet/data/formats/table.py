"""The table of source formats, and which of them a file has."""

import re
from pathlib import Path
from typing import Protocol

from widenet.data.formats import adjacency, csv, parquet
from widenet.data.formats.columns import Columns
from widenet.errors import DataError, OptionError, did_you_mean

_SAMPLE_BYTES = 4096
_FOREIGN = re.compile(r"^\s*[\[{]|^%%MatrixMarket|^\S+\t[^\t,:]+(,[^\t,:]*)?:|^\S+( \d+:\S+)+\s*$")
"""How a first line of JSON lines, MatrixMarket, DSSTNE text or libsvm looks."""


class Format(Protocol):
    """What the file of a format gives."""

    SUFFIXES: tuple[str, ...]
    EMPTY_USERS: bool
    """Whether a row without an item is right: it names a user who has none."""

    def column_names(self, path: Path) -> list[str]:
        """The columns; raises DataError when the file is not of this format."""

    def scan(self, path: Path) -> str:
        """The SQL table of all columns, for DuckDB."""

    def first_mistake(self, path: Path, columns: Columns) -> str | None:
        """The first place that breaks a rule, as a sentence; None when there is none."""


FORMATS: dict[str, Format] = {"csv": csv, "parquet": parquet, "adjacency": adjacency}


def format_of(path: Path, named: str | None = None) -> Format:
    """The format of a source file: the one named, or else by its suffix, or else by its first bytes.

    Raises DataError when the file is missing, a directory or empty, OptionError for an unknown format.
    """
    if named is not None and named not in FORMATS:
        raise OptionError(f'--format must be one of {", ".join(FORMATS)}; got "{named}".{did_you_mean(named, FORMATS)}')
    if not path.exists():
        raise DataError(f"{path}: the file does not exist. Check the path.")
    if path.is_dir():
        raise DataError(f"{path}: must be a file; it is a directory. Name the files in it.")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: must hold interactions; the file is empty.")
    if named is not None:
        return FORMATS[named]
    for known in FORMATS.values():
        if path.name.lower().endswith(known.SUFFIXES):
            return known
    return FORMATS[_format_of_bytes(path)]


def name_of(known: Format) -> str:
    """The name of a format, as --format takes it."""
    return next(name for name, each in FORMATS.items() if each is known)


def _format_of_bytes(path: Path) -> str:
    with path.open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    if sample.startswith(b"PAR1"):
        return "parquet"
    first = sample.split(b"\n", 1)[0].decode(errors="replace")
    if _FOREIGN.search(first):
        known = ", ".join(FORMATS)
        raise DataError(f"{path}: line 1 is that of another format (JSON, DSSTNE, libsvm or MatrixMarket). Convert it to one of {known}.")
    return "csv" if any(delimiter in first for delimiter in csv.DELIMITERS) else "adjacency"
