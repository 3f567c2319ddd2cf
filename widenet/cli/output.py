"""What commands print and write: one JSON document, sentences, lines of text."""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias

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


if TYPE_CHECKING:
    from widenet.metrics.comparison import Comparison
    from widenet.metrics.ranking import Metrics


class _Recommended(Protocol):
    @property
    def item(self) -> str | int: ...
    @property
    def title(self) -> str: ...
    @property
    def score(self) -> float: ...


def metrics_table(
    metrics: Mapping[str, float],
    ks: Sequence[int],
    intervals: Mapping[str, tuple[float, float]] | None = None,
    examples: str = "users",
) -> str:
    """A table with a row for each metric and a column for each k; rows with the bounds of intervals.

    `examples` says what people call those that were evaluated.
    """
    names = list(dict.fromkeys(name.partition("@")[0] for name in metrics if "@" in name))
    lines = [f"{'':12}" + "".join(f"{'@' + str(k):>10}" for k in ks)]
    for name in names:
        lines.append(f"{name:12}" + "".join(f"{metrics[f'{name}@{k}']:>10.4f}" for k in ks))
        bounds = [intervals[f"{name}@{k}"] for k in ks if f"{name}@{k}" in intervals] if intervals else []
        for word, ends in zip(("from", "to"), zip(*bounds, strict=True), strict=False):
            lines.append(f"  {word:10}" + "".join(f"{end:>10.4f}" for end in ends))
    return "\n".join([*lines, f"over {int(metrics['num_examples']):,} {examples}"])


def methods_table(
    methods: Sequence[tuple[str, "Metrics"]], ks: Sequence[int], examples: str = "users"
) -> str:
    """A table for each k, with a row for each method or group, by its name, and a column for each metric.

    The bounds of intervals are rows, too; the last column has the number of those that were evaluated.
    """
    names = dict.fromkeys(name.partition("@")[0] for name in methods[0][1] if "@" in name)
    return "\n\n".join(
        "\n".join(
            aligned(
                _rows_of_methods(methods, [f"{name}@{k}" for name in names], k, examples),
                range(1, len(names) + 2),
            )
        )
        for k in ks
    )


def _rows_of_methods(
    methods: Sequence[tuple[str, "Metrics"]], names: Sequence[str], k: int, examples: str
) -> list[list[str]]:
    rows = [[f"@{k}", *(name.partition("@")[0] for name in names), examples]]
    for method, own in methods:
        rows.append([method, *(_number(own.get(name)) for name in names), f"{int(own['num_examples']):,}"])
        for side, word in enumerate(("  from", "  to")):
            bounds = [own.intervals[name][side] if name in own.intervals else None for name in names]
            if any(bound is not None for bound in bounds):
                rows.append([word, *map(_number, bounds), ""])
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Lines of columns: those numbered in `right` to the right, the others to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    forms = [f"{'>' if column in right else '<'}{width}" for column, width in enumerate(widths)]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


def comparison_table(comparison: "Comparison", names: Sequence[str], examples: str = "users") -> str:
    """A table with a row for each metric; `names` are those of the runs, `examples` as in `metrics_table`."""
    from widenet.metrics.comparison import cells

    header = ["", *names, "difference", f"{comparison.level * 100:g} % interval", "p"]
    rows = [header, *([name, *cells(each)] for name, each in comparison.metrics.items())]
    return "\n".join([*aligned(rows, range(1, len(header))), f"over {comparison.num_examples:,} {examples}"])


Reasons: TypeAlias = Sequence[Sequence[_Recommended]]
"""For each recommended item, the items of the history with what they add to its logit, the largest first."""
_MOST_REASONS = 3


def recommendations_table(
    rows: Sequence[_Recommended],
    attributes: Sequence[Mapping[str, Any]] | None = None,
    reasons: Reasons | None = None,
) -> str:
    """A table of rank, score and title, with the id if it is not the title; also attributes and reasons."""
    lines = []
    for rank, row in enumerate(rows, start=1):
        own = {} if attributes is None else attributes[rank - 1]
        shown = "".join(f"  {name}={_attribute(value)}" for name, value in own.items())
        lines.append(f"{rank:>4}  {row.score:<10.4g}  {_title(row, '  ')}{shown}")
        if reasons is not None:
            added = [f"{_title(each)} {each.score:+.3g}" for each in reasons[rank - 1][:_MOST_REASONS]]
            lines.append(f"{'':18}because of {'; '.join(added) or 'nothing'}")
    return "\n".join(lines)


def _title(row: _Recommended, space: str = " ") -> str:
    """The title of an item, with the id if it is not the title."""
    return row.title if row.title == str(row.item) else f"{row.title}{space}({row.item})"


def _attribute(value: object) -> str:
    """The value of an attribute, as conditions of the command line write it."""
    if isinstance(value, list):
        return "|".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
