"""DSSTNE's NetCDF data from the command line: from text, to a dataset directory and back."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from widenet.cli.declared import IndexFiles, index_files
from widenet.cli.output import say
from widenet.errors import OptionError


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
        Literal["indicator", "analog"],
        typer.Option("-t", help="indicator: features without values; analog: features with values."),
    ] = "indicator",
) -> None:
    """Make NetCDF data from text, with the flags of DSSTNE's command of the same name."""
    from widenet.dsstne.text import generate as run

    if create and merge:
        raise OptionError("-c and -m cannot go together: a new index of features has nothing to add to")
    new_features: Literal["drop", "create", "merge"] = "create" if create else "merge" if merge else "drop"
    run(
        name,
        source,
        out,
        features,
        samples,
        new_features=new_features,
        analog=kind == "analog",
        say=say,
    )


if TYPE_CHECKING:
    from widenet.data.manifest import Manifest


def import_data(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="NetCDF files; each data set in them becomes a field."),
    ],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    features: IndexFiles = None,
    samples: Annotated[Path | None, typer.Option(help="Index file that names the examples.")] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Data set that an output predicts; its dense 8-bit numbers become v/256 or v/128."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset; that of the first file if not given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier dataset.")] = False,
) -> None:
    """Turn DSSTNE's NetCDF data into a dataset directory, whole or not at all."""
    from widenet.cli.data import show
    from widenet.dsstne.data import import_data as run

    named = index_files(features or [])
    made = run(
        sources,
        out,
        features=named,
        samples=samples,
        targets=targets or [],
        name=name,
        overwrite=overwrite,
        on_progress=_echo,
    )
    show(out, made)


def export_data(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset.")],
    out: Annotated[
        Path, typer.Argument(metavar="FILE", help="The NetCDF file to write; an earlier one is replaced.")
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(help="Field that an output predicts; only these fields get the example weights."),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[FIELD=]FILE",
            help="Index file of features to write: for all sparse fields, or FIELD=FILE for one.",
        ),
    ] = None,
    samples: Annotated[Path | None, typer.Option(help="Index file of the examples to write.")] = None,
) -> None:
    """Write a dataset as DSSTNE's NetCDF data and index files, with a data set for each field and part."""
    from widenet.dsstne.export import export_data as run

    named = index_files(features or [])
    run(source, out, targets=targets or [], features=named, samples=samples)
    typer.echo(f"{out}: written.")


def ingest(sources: Sequence[Path], out: Path, name: str | None, context: typer.Context) -> "Manifest":
    """Import the NetCDF files of `widenet data ingest FILE.nc`.

    Raises:
        OptionError: An option applies to files of interactions only.
    """
    from widenet.dsstne.data import import_data as run

    options = [
        parameter
        for parameter in context.command.params
        if str(context.get_parameter_source(str(parameter.name))).endswith("COMMANDLINE")
    ]
    others = [
        parameter.opts[0]
        for parameter in options
        if parameter.name not in ("sources", "out", "name", "overwrite", "as_json")
    ]
    if others:
        rule = "is for files of interactions; a NetCDF file describes its own content"
        raise OptionError(f"{others[0]} {rule}")
    return run(sources, out, name=name, overwrite=context.params["overwrite"], on_progress=_echo)


def _echo(phase: str) -> None:
    typer.echo(f"{phase} ...", err=True)
