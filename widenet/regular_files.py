"""Checks of files that a user names: no pipes or devices, no endless lines, nothing overwritten."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, AnyStr

from widenet.errors import DataError, OptionError, WidenetError

LONGEST_LINE_BYTES = 2**24
"""Longest line of a text file that widenet reads, in bytes."""


def check_regular(path: Path, error: type[WidenetError] = DataError) -> None:
    """Raise `error` for a path that exists and is neither a file nor a folder.

    Opening a pipe without a writer would wait forever, and a device such as /dev/zero never ends.
    """
    try:
        exists, is_regular = path.exists(), path.is_file() or path.is_dir()
    except OSError as problem:
        raise error(f"cannot be read: {problem.strerror}", place=path) from None
    if exists and not is_regular:
        raise error("must be a file; it is a pipe or a device", place=path)


def check_new(path: Path, overwrite: bool, what: str, is_own: Callable[[Path], bool]) -> None:
    """Raise OptionError unless a file may be written at a path.

    Args:
        path: The path.
        overwrite: Whether to replace an earlier file.
        what: What widenet writes there, for the message, such as "a report".
        is_own: Whether an earlier file is such a one.
    """
    if not path.exists():
        return
    if not overwrite:
        raise OptionError("must be set, because something is there already", place=path, option="overwrite")
    if not path.is_file() or not is_own(path):
        raise OptionError(f"replaces only {what} that widenet wrote", place=path, option="overwrite")


def bounded_lines(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """Yield the lines of an open file with their ends; raise DataError for a line that is too long."""
    number = 1
    while line := file.readline(LONGEST_LINE_BYTES + 1):
        if len(line) > LONGEST_LINE_BYTES:
            raise DataError(f"must have at most {LONGEST_LINE_BYTES:,} bytes", place=path, line=number)
        yield line
        number += 1
