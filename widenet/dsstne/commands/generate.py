"""`widenet dsstne generateNetCDF`: DSSTNE's text to its NetCDF data."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from widenet.cli.output import say
from widenet.errors import OptionError


class _Type(StrEnum):
    indicator = "indicator"
    analog = "analog"


def generate(
    name: Annotated[str, typer.Option("-d", help="Name of the data set.")],
    source: Annotated[
        Path,
        typer.Option(
            "-i", help="Text, `sample<TAB>feature,value:feature,value` a line; a file, or a folder of files."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", help="The NetCDF file to write; an earlier one is replaced.")],
    features: Annotated[Path, typer.Option("-f", help="Index file of the features.")],
    samples: Annotated[Path, typer.Option("-s", help="Index file of the samples; created or extended.")],
    create: Annotated[bool, typer.Option("-c", help="Create a new index of features.")] = False,
    merge: Annotated[
        bool,
        typer.Option("-m", help="Add features that the index lacks; without -c and -m they are dropped."),
    ] = False,
    kind: Annotated[
        _Type, typer.Option("-t", help="indicator: features without values; analog: features with values.")
    ] = _Type.indicator,
) -> None:
    """Make NetCDF data from text, with the flags of DSSTNE's command of the same name."""
    from widenet.dsstne.text import generate as run

    if create and merge:
        raise OptionError(
            "-c and -m cannot go together: a new index of features has nothing to add to. Leave one out."
        )
    new_features: Literal["drop", "create", "merge"] = "create" if create else "merge" if merge else "drop"
    analog = kind is _Type.analog
    run(
        name,
        source,
        out,
        features,
        samples,
        new_features=new_features,
        analog=analog,
        say=say,
    )
