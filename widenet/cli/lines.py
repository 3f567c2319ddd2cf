"""Writing lines of text to standard output, or to a file that appears when it is complete."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import typer

from widenet.errors import OptionError
from widenet.stores.durable import appearing


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Open a file for lines of text, and yield the function that writes to it.

    Missing folders are created, and an earlier file is replaced.

    Args:
        path: The file; None for standard output.

    Raises:
        OptionError: The path is a directory.
        OSError: Writing failed; the error names the file or standard output.
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
    """Add the name of standard output to an error of writing to it."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise
