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
    """Run a DSSTNE command file: Train, Predict or Validate.

    Predict prints k, precision, recall and NDCG of a trained network for k from 1 to 10. Validate checks the
    gradient of every weight against finite differences, and exits with status 2 if one is wrong.
    """
    from widenet.dsstne.commands.train import Report
    from widenet.dsstne.encoder import encoder as run

    for line in run(command, Report()):
        typer.echo(line)
