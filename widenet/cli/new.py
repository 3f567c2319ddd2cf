"""`widenet new`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="The folder to create; it must not exist yet.")
    ],
) -> None:
    """Create a project: documents, a README that explains them, a Makefile, and a little generated data."""
    from widenet.starter import start

    for path in start(folder):
        typer.echo(path)
    typer.echo(f"Next: {shlex.join(['cd', str(folder)])}, then make")
