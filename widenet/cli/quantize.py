"""`widenet quantize`."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.json_output import AsJson
from widenet.cli.options import Run
from widenet.cli.smaller import say_smaller


def quantize(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run in 8 bits of a trained one, for recommending on a CPU.

    It has about a quarter of the bytes. Every other command reads it as any run; it is not trained
    further.
    """
    from widenet.runs.quantizing import quantize as make
    from widenet.training.existing_run import check_run

    check_run(run)
    say_smaller(run, make(run, out, overwrite), out, as_json)
