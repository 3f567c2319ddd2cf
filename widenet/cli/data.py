"""`widenet data`: from raw interactions to a dataset directory."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.dataset import show
from widenet.cli.ingest import ingest

app = typer.Typer(help="Make and look at datasets.", no_args_is_help=True, rich_markup_mode=None)


app.command("ingest")(ingest)


@app.command("split")
def split(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to split.")],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    heldout: Annotated[float, typer.Option(help="Share of each user's items set aside for the final evaluation.")] = 0.0,
    validation: Annotated[float, typer.Option(help="Share set aside for choosing between trainings.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Start of the random choice.")] = 0,
    field: Annotated[str, typer.Option(help="The field to split.")] = "items",
) -> None:
    """Set a random share of each user's items aside. At least one item of each user stays for training."""
    from widenet.data.split import split as run

    show(out, run(source, out, heldout=heldout, validation=validation, seed=seed, field=field))


@app.command("verify")
def verify(source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to check.")]) -> None:
    """Read every file of a dataset: compare its checksum, and check every rule of what it holds."""
    from widenet.data.manifest import Manifest

    manifest = Manifest.read(source)
    manifest.verify(source)
    show(source, manifest)
