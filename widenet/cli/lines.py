"""Lines of text to a file that appears when it is complete, or to standard output."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

import typer

from widenet.durable import appearing
from widenet.errors import OptionError


@contextmanager
def lines_to(path: Path | None) -> Iterator[TextIO]:
    """An open text; None: standard output. Folders are made, an earlier file is replaced. Raises OptionError, OSError."""
    if path is None:
        out = typer.get_text_stream("stdout")
        try:
            yield out
            out.flush()
        except OSError as error:
            error.filename = error.filename or "standard output"  # a write that fails names no file
            raise
        return
    if path.is_dir():
        raise OptionError(f"{path}: must be a file to write; it is a directory. Name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield text
        finally:
            text.detach()
