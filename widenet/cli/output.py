"""What commands print and write: one JSON document, sentences, lines of text."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.errors import OptionError, in_one_line
from widenet.stores.durable import appearing

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(result: Any) -> None:
    """Print a result as JSON with unrounded numbers; a number that is not finite becomes null."""
    typer.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False, indent=2))


def print_result(as_json: bool, facts: Any, *lines: str) -> None:
    """Print a result as JSON, or in lines of text."""
    if as_json:
        print_json(facts)
    else:
        typer.echo("\n".join(lines))


def _plain(value: Any) -> Any:
    """Return what JSON can hold of a value."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def say(sentence: str) -> None:
    """Print a sentence to standard error."""
    typer.echo(in_one_line(sentence), err=True)


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
        raise OptionError("must be a file to write; it is a directory", place=path)
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
