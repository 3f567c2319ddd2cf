"""`widenet schema`."""

import json
from enum import StrEnum
from typing import Annotated

import typer


class _Document(StrEnum):
    network = "network"
    training = "training"


def schema(document: Annotated[_Document, typer.Argument(help="The document.")]) -> None:
    """Print the JSON Schema of a document, which lets editors complete and check it."""
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    model = NetworkSpec if document is _Document.network else TrainingSpec
    typer.echo(
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}, indent=2
        )
    )
