"""`widenet dsstne translate`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.lines import lines_to


class _Dialect(StrEnum):
    dsstne = "dsstne"
    widenet = "widenet"


def translate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="DSSTNE's network document.")],
    out: Annotated[Path | None, typer.Option(help="The network.json to write. Printed if not given.")] = None,
    dialect: Annotated[
        _Dialect,
        typer.Option(help="dsstne does what DSSTNE's code does; widenet takes its names by what they say."),
    ] = _Dialect.dsstne,
) -> None:
    """Say a DSSTNE network document in widenet's words; what belongs in training.json is told on standard
    error.

    A document has no weights: `widenet import` reads networks that DSSTNE trained.
    """
    from widenet.dsstne.spec.network import is_dsstne, translation
    from widenet.errors import DocumentError
    from widenet.spec.network import NetworkSpec

    values = NetworkSpec.read_values(config)
    if not is_dsstne(values):
        raise DocumentError(
            f'{config} must be a DSSTNE network, of which a layer has a "DataSet"; got another document. Use'
            " it as it is."
        )
    found = translation(values, str(config), dialect.value)
    document = NetworkSpec.of(found.network, f"{config}, in widenet's words")
    text = json.dumps(found.network, indent=2, ensure_ascii=False)
    for note in found.notes:
        typer.echo(note, err=True)
    typer.echo(f"For training.json: {json.dumps(found.training)}", err=True)
    if out is None:
        typer.echo(text)
        return
    with lines_to(out) as write:
        write(text + "\n")
    typer.echo(f"{out}: {len(document.layers)} layers.")
