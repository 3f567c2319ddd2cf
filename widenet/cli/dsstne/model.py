"""`widenet dsstne import-model` and `export-model`: DSSTNE's trained networks to runs and back."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.options import IndexFiles, Run, index_files, pairs


def import_model(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The NetCDF file of a trained network.")],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    data: Annotated[Path | None, typer.Option(help="A dataset that has the network's fields and names their features.")] = None,
    features: IndexFiles = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="SET=FIELD", help="Another name for the field of a data set, such as gl_input=items."),
    ] = None,
) -> None:
    """Make a run of a network that DSSTNE trained: it predicts at once, and trainings may begin with its weights."""
    from widenet.interop.dsstne.model import import_model as run

    named, renamed = index_files(features or []), pairs("--field", "SET=FIELD", fields or [])
    model = run(source, out, data=data, features=named, fields=renamed, say=lambda text: typer.echo(text, err=True))
    typer.echo(repr(model))


def export_model(
    source: Run,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The NetCDF file to write; an earlier one is replaced.")],
) -> None:
    """Write a run as a network that DSSTNE predicts with."""
    from widenet.interop.dsstne.model_export import export_model as run

    run(source, out)
    typer.echo(f"{out}: written.")
