"""`widenet dsstne export-model`, which writes a run as a trained network for DSSTNE."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.declared import Run


def export_model(
    source: Run,
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="The NetCDF file to write; an earlier one is replaced.")
    ],
) -> None:
    """Write a run as a trained network for DSSTNE; `widenet import` reads such networks."""
    from widenet.dsstne.model_export import export_model as run

    run(source, out)
    typer.echo(f"{out}: written.")
