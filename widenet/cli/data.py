"""`widenet data`: makes, splits, describes and verifies dataset directories."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.dataset import show, show_description, summary
from widenet.cli.declared import with_flags_of
from widenet.cli.extreme import extreme
from widenet.cli.fetch import fetch
from widenet.cli.ingest import ingest
from widenet.cli.json_output import AsJson, print_json
from widenet.data.split import SplitArguments
from widenet.errors import OptionError, WidenetError

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset

app = typer.Typer(help="Make, split and describe datasets.", no_args_is_help=True, rich_markup_mode=None)

_HeldoutUsers = Annotated[
    float,
    typer.Option(
        help="Share of users to set aside into --users-out. --heldout then divides only their items; with 1,"
        " it takes all of them."
    ),
]

_UsersOut = Annotated[Path | None, typer.Option(help="The dataset directory to make from these users.")]

app.command("ingest")(ingest)
app.command("fetch")(fetch)
app.command("extreme")(extreme)


@app.command("split")
@with_flags_of(SplitArguments)
def split(
    heldout_users: _HeldoutUsers = 0.0, users_out: _UsersOut = None, as_json: AsJson = False, **words: Any
) -> None:
    """Set aside a random share of each user's items, the last items, or whole users."""
    from widenet.data.split import split as run

    if users_out is None and not heldout_users:
        show(words["out"], run(**words).manifest, made=False, as_json=as_json)
        return
    if users_out is None or not heldout_users:
        raise OptionError(
            "--heldout-users and --users-out go together: the share, and the directory of these users. Give"
            " both."
        )
    for name in ("heldout_last", "validation_last", "heldout_since", "validation_since"):
        if words.pop(name) is not None:
            raise OptionError(f"--heldout-users must not stand beside `{name}`. Split twice.")
    out = words.pop("out")
    both = _split_users(words.pop("source"), out, users_out, users=heldout_users, **words)
    if as_json:
        print_json([summary(path, made.manifest) for path, made in zip((out, users_out), both, strict=True)])
        return
    for path, made in zip((out, users_out), both, strict=True):
        show(path, made.manifest, made=False)


def _split_users(source: Path, out: Path, users_out: Path, **options: Any) -> "tuple[Dataset, Dataset]":
    """Set users aside, and return both datasets."""
    from widenet.data.held_users import split_users

    try:
        return split_users(source, out, users_out, **options)
    except WidenetError as error:
        raise type(error)(re.sub(r"`users(?=[`=])", "`heldout_users", str(error))) from error


@app.command("describe")
def describe(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to describe.")],
    as_json: AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Plot the distributions into this .png or .svg file; needs matplotlib."),
    ] = None,
) -> None:
    """Describe a dataset: its size, its density and the distribution of its interactions."""
    from widenet.data.description import describe as run

    described = run(source, plot)
    if as_json:
        print_json(described)
    else:
        show_description(source, described)


@app.command("verify")
def verify(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to check.")],
    as_json: AsJson = False,
) -> None:
    """Read every file of a dataset, and check its checksum and content."""
    from widenet.data.contents import verify as read_and_check
    from widenet.data.manifest import Manifest
    from widenet.stores.fetch import readable

    folder = readable(source, "dataset")
    manifest = Manifest.read(folder)
    read_and_check(folder, manifest)
    show(source, manifest, made=False, as_json=as_json)
    typer.echo("Every checksum and every rule holds.", err=as_json)
