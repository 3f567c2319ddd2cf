"""`widenet dsstne encoder`."""

from pathlib import Path
from typing import Annotated

import typer


def encoder(
    command: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The command file: Network, Data, Command, TrainingParameters."),
    ],
) -> None:
    """Do what a DSSTNE command file says: train; print k, precision, recall and NDCG of a trained network for
    k from 1 to 10; or validate.

    Validate holds the gradient of every weight against a quotient of differences, and ends with status 2
    where one is wrong.
    """
    from widenet.dsstne.commands.train import Report
    from widenet.dsstne.encoder import encoder as run

    for line in run(command, Report()):
        typer.echo(line)
