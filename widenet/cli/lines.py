"""Lines of text to a file that appears when it is complete, or to standard output."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer

from widenet.errors import OptionError


@contextmanager
def lines_to(path: Path | None) -> Iterator[TextIO]:
    """An open text; None: standard output. Folders are made, an earlier file is replaced. Raises OptionError, OSError."""
    if path is None:
        yield typer.get_text_stream("stdout")
        return
    if path.is_dir():
        raise OptionError(f"{path}: must be a file to write; it is a directory. Name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
