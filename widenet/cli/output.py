"""What commands print and write: one JSON document, sentences, lines of text."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import to_json

from widenet.cli.processes import leads
from widenet.errors import OptionError, in_one_line
from widenet.stores.durable import appearing

if TYPE_CHECKING:
    from widenet.runs import Recommendation

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def print_json(result: Any) -> None:
    """Print a result as JSON with unrounded numbers; a number that is not finite becomes null."""
    print_lines(to_json(result, indent=2, inf_nan_mode="null").decode())


def print_result(as_json: bool, facts: Any, *lines: str) -> None:
    """Print a result as JSON, or in lines of text."""
    if as_json:
        print_json(facts)
    else:
        print_lines(*lines)


def print_lines(*lines: str) -> None:
    """Print lines of text to standard output, in the process that does so for its group."""
    if leads():
        typer.echo("\n".join(lines))


_flags: dict[str, str] = {}
"""How the command that runs writes its arguments: flags, or metavars, by the arguments' Python names."""


def write_options_of(command: Any) -> None:
    """Let sentences write arguments as a command does."""
    _flags.clear()
    for each in command.params:
        is_option = each.param_type_name == "option"
        _flags[each.name] = each.opts[0] if is_option else each.metavar or each.name.upper()


def flag_of(name: str) -> str:
    """Return how the command that runs writes an argument."""
    return _flags.get(name, name)


def with_flags(sentence: str) -> str:
    """Return a sentence with flags in place of the arguments that stand in backticks."""
    for name, flag in _flags.items():
        sentence = sentence.replace(f"`{name}`", flag)
    return sentence


def say(sentence: str) -> None:
    """Print a sentence to standard error, in the process that does so for its group."""
    if leads():
        typer.echo(in_one_line(with_flags(sentence)), err=True)


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Print each warning of the library as a sentence."""
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        yield
    for sentence in dict.fromkeys(str(each.message) for each in caught):
        say(sentence)


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
        yield partial(typer.echo, nl=False)
        return
    OptionError.require(not path.is_dir(), "must be a file to write; it is a directory", place=path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n")
        try:
            yield text.write
        finally:
            text.detach()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with a header: columns of numbers stand to the right, the first one and words left."""
    columns = [*zip(*rows, strict=True)]
    forms = []
    for number, (_, *cells) in enumerate(columns):
        is_right = number and all(cell.lstrip("+-< ")[:1].isdigit() or not cell for cell in cells)
        forms.append(f"{'>' if is_right else '<'}{max(map(len, columns[number]))}")
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


def recommendations_table(
    rows: Sequence["Recommendation"], reasons: Sequence[Sequence["Recommendation"]] | None = None
) -> str:
    """A table of rank, score and title, with the id if it is not the title.

    It may have reasons: the items of the history with what they add, the largest first.
    """
    lines = []
    for rank, row in enumerate(rows, start=1):
        lines.append(f"{rank:>4}  {row.score:<10.4g}  {_title(row, '  ')}")
        if reasons is not None:
            added = [f"{_title(each)} {each.score:+.3g}" for each in reasons[rank - 1][:3]]
            lines.append(f"{'':18}because of {'; '.join(added) or 'nothing'}")
    return "\n".join(lines)


def _title(row: "Recommendation", space: str = " ") -> str:
    """The title of an item, with the id if it is not the title."""
    return row.title if row.title == str(row.item) else f"{row.title}{space}({row.item})"
