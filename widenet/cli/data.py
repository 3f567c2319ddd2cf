"""`widenet data`: from raw interactions to a dataset directory."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make and look at datasets.", no_args_is_help=True, rich_markup_mode=None)


InSequence = Annotated[
    bool, typer.Option("--sequence", help="Each user has a sequence: every row counts, by --time or else as the sources have them.")
]


@app.command("ingest")
def ingest(
    context: typer.Context,
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE", help="CSV, Parquet or adjacency files of interactions, or NetCDF files of DSSTNE.")
    ],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    user: Annotated[str | None, typer.Option(help="Column of the user. Guessed where it has an obvious name.")] = None,
    item: Annotated[str | None, typer.Option(help="Column of the item. Guessed where it has an obvious name.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of a number for each interaction, such as a rating.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of the time; the last of repeated interactions counts.")] = None,
    min_value: Annotated[
        float | None, typer.Option(help="Keep interactions of at least this value; they then count as plain ones.")
    ] = None,
    keep_values: Annotated[bool, typer.Option("--keep-values", help="Store values that --min-value has filtered.")] = False,
    titles: Annotated[Path | None, typer.Option(help="CSV or Parquet file that names the items.")] = None,
    title_id: Annotated[str | None, typer.Option(help="Its column of the item's id.")] = None,
    title: Annotated[str | None, typer.Option(help="Its column of the title.")] = None,
    heldout: Annotated[Path | None, typer.Option(help="A given test part, for the final evaluation.")] = None,
    sequence: InSequence = False,
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, parquet or adjacency (USER ITEM ITEM ... a line). Known by suffix and content.")
    ] = None,
    field: Annotated[str, typer.Option(help="Name of the dataset's field.")] = "items",
    name: Annotated[str | None, typer.Option(help="Name of the dataset; that of the first source if not given.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="DuckDB's memory, such as 8GB; beyond it, disk is used. A quarter of what is left. Merging: 50 MB a thread more."
        ),
    ] = None,
) -> None:
    """Turn interactions into a dataset directory, whole or not at all."""
    from widenet.cli.dsstne.data import ingest as ingest_netcdf
    from widenet.data.ingest import ingest as run
    from widenet.interop.dsstne.signature import is_netcdf

    if any(is_netcdf(source) for source in sources):
        show(out, ingest_netcdf(sources, out, name, context))
        return
    manifest = run(
        sources,
        out,
        user=user,
        item=item,
        value=value,
        time=time,
        min_value=min_value,
        keep_values=keep_values,
        titles=titles,
        title_id=title_id,
        title=title,
        heldout=heldout,
        sequence=sequence,
        format=file_format,
        field=field,
        name=name,
        memory=memory,
        on_progress=lambda phase: typer.echo(f"{phase} ...", err=True),
    )
    show(out, manifest)


@app.command("split")
def split(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to split.")],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    heldout: Annotated[float, typer.Option(help="Share of each user's items set aside for the final evaluation.")] = 0.0,
    validation: Annotated[float, typer.Option(help="Share set aside for choosing between trainings.")] = 0.0,
    last: Annotated[int, typer.Option(help="Of sequences: how many items at the end are set aside for the final evaluation.")] = 0,
    last_validation: Annotated[int, typer.Option(help="How many before those, for choosing between trainings.")] = 0,
    seed: Annotated[int, typer.Option(help="Start of the random choice.")] = 0,
    field: Annotated[str, typer.Option(help="The field to split.")] = "items",
) -> None:
    """Set a random share of each user's items aside, or the end of each sequence. At least one item of each user stays for training."""
    from widenet.data.split import split as run

    ends = {"last": last, "last_validation": last_validation}
    show(out, run(source, out, heldout=heldout, validation=validation, seed=seed, field=field, **ends))


@app.command("verify")
def verify(source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to check.")]) -> None:
    """Read every file of a dataset: compare its checksum, and check every rule of what it holds."""
    from widenet.data.manifest import Manifest

    manifest = Manifest.read(source)
    manifest.verify(source)
    show(source, manifest)


def show(path: Path, manifest) -> None:  # type: ignore[no-untyped-def]
    """Say what a dataset holds."""
    typer.echo(f"{path}: {manifest.num_examples:,} users")
    for field in manifest.fields.values():
        parts = ", ".join(f"{count:,} {part}" for part, count in field.num_entries.items())
        typer.echo(f"  {field.name}: {field.width:,} {'numbers' if field.kind == 'dense' else 'features'}; {parts or 'dense'}")
    for fact, count in manifest.source.items():
        if isinstance(count, int) and not isinstance(count, bool) and count:
            typer.echo(f"  {fact.replace('_', ' ')}: {count:,}")
