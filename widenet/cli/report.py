"""`widenet report`, and the report at the end of a training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.arguments import IN_STORES
from widenet.cli.model import warnings_as_sentences
from widenet.cli.output import AsJson, aligned, print_json, print_result, say
from widenet.errors import in_one_line

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.runs import Model


def report(
    runs: Annotated[
        list[Path],
        IN_STORES,
        typer.Argument(metavar="RUN", help="Run directories; the page compares several."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write. Default: RUN/report.html, or ./report.html for several runs."),
    ] = None,
    data: Annotated[
        Path | None,
        IN_STORES,
        typer.Option(help="The dataset directory. Default: the one that the training used."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier report.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about a run, or a comparison of several.

    It shows curves, the network, the data, recommendations, time and documents.
    """
    from widenet.errors import OptionError
    from widenet.report.write import write_report

    if data is not None and len(runs) > 1:
        raise OptionError("is for the report of one run", option="data")
    with warnings_as_sentences():
        written = write_report(runs, out, data, overwrite=overwrite)
    print_result(as_json, {"report": written}, str(written))


def leave_report(model: "Model", data: "Dataset", quiet: bool) -> Path | None:
    """Write the report of a finished training and return its path; print a failure and return None."""
    from widenet.report.write import write_report

    try:
        return write_report(model, data=data)
    except Exception as error:
        if not quiet:
            reason = f"{error}".rstrip(".") or type(error).__name__
            typer.echo(
                f"The training is finished and saved, but its report could not be written: {reason}.",
                err=True,
            )
        return None


def leave_interim_report(run: Path, data: "Dataset") -> Path | None:
    """Write the report of an interrupted training, without slow recommendations; None after a failure."""
    from widenet.report.write import write_report

    try:
        return write_report(run, data=data, recommendations=False)
    except (Exception, KeyboardInterrupt):  # the command must still end, with its own status
        return None


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
