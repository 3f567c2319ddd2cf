"""Lines of text to a file that appears when it is complete, or to standard output."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import typer

from widenet.durable import appearing
from widenet.errors import OptionError


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[str], object]]:
    """What writes a text; None: to standard output.

    Folders are made, an earlier file is replaced. Raises OptionError, OSError.
    """
    if path is None:
        out = typer.get_text_stream("stdout")

        def write(text: str) -> None:
            with _named():
                out.write(text)

        yield write
        with _named():
            out.flush()
        return
    if path.is_dir():
        raise OptionError(f"{path}: must be a file to write; it is a directory. Name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield text.write
        finally:
            text.detach()


@contextmanager
def _named() -> Iterator[None]:
    """Names standard output where writing to it fails, of which the error itself names nothing."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise
