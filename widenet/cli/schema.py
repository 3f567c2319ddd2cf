"""`widenet schema`."""

import json
from typing import Annotated, Literal

import typer


def schema(
    document: Annotated[Literal["network", "training", "space"], typer.Argument(help="The document.")],
) -> None:
    """Print the JSON Schema of a document, which lets editors complete and check it."""
    from widenet.spec.document import Document
    from widenet.spec.network import NetworkSpec
    from widenet.spec.space import SpaceSpec
    from widenet.spec.training import TrainingSpec

    models: dict[str, type[Document]] = {"network": NetworkSpec, "training": TrainingSpec, "space": SpaceSpec}
    typer.echo(
        json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **models[document].model_json_schema(),
            },
            indent=2,
        )
    )
