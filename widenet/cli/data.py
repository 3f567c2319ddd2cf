"""`widenet data`: makes, splits, describes and verifies dataset directories."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.dataset import show, show_description
from widenet.cli.declared import with_flags_of
from widenet.cli.fetch import fetch
from widenet.cli.ingest import ingest
from widenet.data.split_arguments import SplitArguments
from widenet.errors import OptionError, WidenetError

app = typer.Typer(help="Make, split and describe datasets.", no_args_is_help=True, rich_markup_mode=None)

_HeldoutUsers = Annotated[
    float,
    typer.Option(
        help="Share of users to set aside into --users-out. --heldout then divides only their items."
    ),
]

_UsersOut = Annotated[Path | None, typer.Option(help="The dataset directory to make from these users.")]

app.command("ingest")(ingest)
app.command("fetch")(fetch)


@app.command("split")
@with_flags_of(SplitArguments)
def split(heldout_users: _HeldoutUsers = 0.0, users_out: _UsersOut = None, **words: Any) -> None:
    """Set aside a random share of each user's items, the last items, or whole users."""
    from widenet.data.split import split as run

    if users_out is None and not heldout_users:
        show(words["out"], run(**words).manifest, made=False)
        return
    if users_out is None or not heldout_users:
        raise OptionError(
            "--heldout-users and --users-out go together: the share, and the directory of these users. Give"
            " both."
        )
    for name in ("heldout_last", "validation_last", "heldout_since", "validation_since"):
        if words.pop(name) is not None:
            raise OptionError(f"--heldout-users must not stand beside `{name}`. Split twice.")
    _split_users(words.pop("source"), words.pop("out"), users_out, users=heldout_users, **words)


def _split_users(source: Path, out: Path, users_out: Path, **options: Any) -> None:
    """Set users aside, and print both datasets."""
    from widenet.data.held_users import split_users

    try:
        both = split_users(source, out, users_out, **options)
    except WidenetError as error:
        raise type(error)(re.sub(r"`users(?=[`=])", "`heldout_users", str(error))) from error
    for path, made in zip((out, users_out), both, strict=True):
        show(path, made.manifest, made=False)


@app.command("describe")
def describe(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to describe.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot the distributions into this .png or .svg file; needs matplotlib."),
    ] = None,
) -> None:
    """Describe a dataset: its size, its density and the distribution of its interactions."""
    from widenet.data.description import describe as run

    described = run(source, plot)
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        show_description(source, described)


@app.command("verify")
def verify(source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to check.")]) -> None:
    """Read every file of a dataset, and check its checksum and content."""
    from widenet.data.contents import verify as read_and_check
    from widenet.data.manifest import Manifest
    from widenet.stores.fetch import readable

    folder = readable(source, "dataset")
    manifest = Manifest.read(folder)
    read_and_check(folder, manifest)
    show(source, manifest, made=False)
    typer.echo("Every checksum and every rule holds.")
