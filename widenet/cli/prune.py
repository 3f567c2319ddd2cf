"""`widenet prune`."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.json_output import AsJson
from widenet.cli.options import Run
from widenet.cli.smaller import say_smaller


def prune(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    nonzeros: Annotated[
        int | None,
        typer.Option(min=1, help="Numbers of each vector that stay. Default: those of the training."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a pruned run of a trained one: the largest numbers of each vector, for recommending on a CPU.

    Every other command reads it as any run; it is not trained further.
    """
    from widenet.runs.pruning import prune as make
    from widenet.training.existing_run import check_run

    check_run(run)
    say_smaller(run, make(run, out, nonzeros, overwrite), out, as_json)
