"""`widenet runs`: a table of runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.cli.output import AsJson, print_json, say
from widenet.cli.tables import aligned
from widenet.errors import in_one_line

if TYPE_CHECKING:
    from widenet.report.listing import ListedRun

_SHORT = 12
"""Digits of a fingerprint in the table."""
_HEADER = ("run", "state", "epochs", "kept metric", "fingerprint", "time")
_INDENT = "    "
_ABSENT = "-"
_MOST = 4
"""Differing values of a document that a run shows."""
_LONGEST = 48
"""Letters of a value in the table."""


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs, at any depth.")
    ] = Path("runs"),
    sort: Annotated[
        Literal["metric", "name", "state", "epochs", "time", "newest"],
        typer.Option(help="metric, epochs and time begin with the largest."),
    ] = "metric",
    as_json: AsJson = False,
) -> None:
    """List the runs below a folder, and how their documents differ.

    Each run has a line with its state, epochs, the metric of the epoch that it keeps and the part that this
    was measured on, the beginning of its fingerprint, and the time of its steps. The lines below it show its
    values where the documents of the listed runs differ, up to four of each document, and long ones cut;
    --json has all.
    """
    from dataclasses import asdict

    from widenet.report.listing import list_runs

    listing = list_runs(folder, sort)
    if as_json:
        problems = [{"path": path, "problem": text} for path, text in listing.problems.items()]
        print_json({"runs": [asdict(run) for run in listing.runs], "problems": problems})
        return
    if listing.runs:
        typer.echo("\n".join(_lines(listing.runs)))
    else:
        say(f"{folder} holds no run.")
    for run in listing.runs:
        if run.warning is not None:
            say(f"{run.name}: {run.warning}")
    for problem in listing.problems.values():
        say(problem)


def _lines(listed: Sequence["ListedRun"]) -> list[str]:
    rows = [_HEADER, *(_cells(run) for run in listed)]
    header, *own = aligned(rows, ())
    lines = [header]
    for run, line in zip(listed, own, strict=True):
        more = [*_origin(run), *_differences(run.differences)]
        lines += [line, *([_INDENT + ", ".join(more)] if more else [])]
    return lines


def _cells(run: "ListedRun") -> tuple[str, ...]:
    from widenet.plan.numbers import duration

    return (
        in_one_line(run.name),
        run.state,
        f"{run.epochs}/{run.epochs_asked}",
        _ABSENT if run.value is None else f"{run.metric} {run.value:.4f} on {run.part}",
        _ABSENT if run.fingerprint is None else run.fingerprint[:_SHORT],
        duration(run.seconds) if run.seconds else _ABSENT,
    )


def _origin(run: "ListedRun") -> list[str]:
    return [] if run.form is None else [in_one_line(f"{run.form}, made of {run.made_of}")]


def _differences(told: Mapping[str, Any]) -> list[str]:
    """The differing values of a run, the first few of each document.

    Otherwise one run with other layers or another optimizer would fill the screen.
    """
    from widenet.report.differences import as_text

    shown: dict[str, list[str]] = {}
    for place in told:
        shown.setdefault(place.partition(".")[0], []).append(place)
    first = [place for own in shown.values() for place in own[:_MOST]]
    texts = [in_one_line(f"{place}={_shortened(as_text(told[place]))}") for place in first]
    more = len(told) - len(first)
    return [*texts, *([f"and {more} more"] if more else [])]


def _shortened(text: str) -> str:
    """The beginning and the end of a long text: a path keeps its name, and a list its first entries."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 20]}…{text[-19:]}"
