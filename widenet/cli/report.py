"""`widenet report`, and the report at the end of a training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widenet.arguments import IN_STORES
from widenet.cli.model import warnings_as_sentences
from widenet.cli.output import AsJson, print_result

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
