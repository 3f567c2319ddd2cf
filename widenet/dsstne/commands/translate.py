"""`widenet dsstne translate`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.output import lines_to


class _Dialect(StrEnum):
    dsstne = "dsstne"
    widenet = "widenet"


def translate(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="DSSTNE's network document.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The network.json to write; an earlier one is replaced. Printed if not given."),
    ] = None,
    dialect: Annotated[
        _Dialect,
        typer.Option(
            help="Meaning of names: dsstne, as its code computes them; widenet, as usually defined."
        ),
    ] = _Dialect.dsstne,
) -> None:
    """Translate a DSSTNE network document to a network.json, and print its settings for training.json.

    The settings go to standard error. A document has no weights: use `widenet import` for networks that
    DSSTNE trained.
    """
    from widenet.dsstne.spec.network import is_dsstne, translation
    from widenet.errors import DocumentError
    from widenet.spec.network import NetworkSpec

    values = NetworkSpec.read_values(config)
    if not is_dsstne(values):
        raise DocumentError(
            f'{config} must be a DSSTNE network: at least one layer needs a "DataSet". Use other documents as'
            " they are."
        )
    translated = translation(values, str(config), dialect.value)
    document = NetworkSpec.of(translated.network, f"{config}, translated")
    text = json.dumps(translated.network, indent=2, ensure_ascii=False)
    for note in translated.notes:
        typer.echo(note, err=True)
    typer.echo(f"For training.json: {json.dumps(translated.training)}", err=True)
    if out is None:
        typer.echo(text)
        return
    with lines_to(out) as write:
        write(text + "\n")
    typer.echo(f"{out}: {len(document.layers)} layers.")
