"""`widenet report`, and the report that a training leaves."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.runs import Model


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option(help="A new file to write; RUN/report.html, or ./report.html for several runs."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The dataset directory; where the training had it, if not given.")
    ] = None,
) -> None:
    """Write an HTML page about a run, or one that compares several: curves, network, data,
    recommendations, time, documents.
    """
    from widenet.errors import OptionError
    from widenet.report.write import write_report

    if data is not None and len(runs) > 1:
        raise OptionError(
            "--data is for the report of one run; several are compared by their logs and documents. Leave it"
            " out."
        )
    typer.echo(write_report(runs, out, data))


def leave_report(model: "Model", data: "Dataset", quiet: bool) -> Path | None:
    """Write the report of a training that has ended; where that fails, say so in a line and give None, for
    the training is safe.
    """
    from widenet.report.write import write_report

    try:
        return write_report(model, data=data)
    except Exception as error:
        if not quiet:
            reason = f"{error}".rstrip(".") or type(error).__name__
            typer.echo(
                f"The training has ended well, but its report could not be written: {reason}.", err=True
            )
        return None


def leave_interim_report(run: Path, data: "Dataset") -> Path | None:
    """Write the report of an interrupted training, without recommendations, which take their time; None
    where that fails.
    """
    from widenet.report.write import write_report

    try:
        return write_report(run, data=data, recommendations=False)
    except (Exception, KeyboardInterrupt):  # nothing may hinder the end, nor the exit status
        return None
