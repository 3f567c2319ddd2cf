"""`widenet data`: from raw interactions to a dataset directory."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from widenet.cli.dataset import show, show_description
from widenet.cli.fetch import fetch
from widenet.cli.ingest import ingest
from widenet.errors import OptionError, WidenetError

app = typer.Typer(help="Make and look at datasets.", no_args_is_help=True, rich_markup_mode=None)

_HeldoutUsers = Annotated[
    float,
    typer.Option(
        help="Share of the users set aside whole, into --users-out; --heldout is then of their items alone."
    ),
]

app.command("ingest")(ingest)
app.command("fetch")(fetch)


@app.command("split")
def split(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to split.")],
    out: Annotated[Path, typer.Option(help="The dataset directory to make.")],
    heldout: Annotated[
        float, typer.Option(help="Share of each user's items set aside for the final evaluation.")
    ] = 0.0,
    validation: Annotated[float, typer.Option(help="Share set aside for choosing between trainings.")] = 0.0,
    heldout_last: Annotated[
        str | None,
        typer.Option(
            metavar="N|DURATION",
            help="Set each user's last N items, or all of the last 7d, aside. See --keep-times.",
        ),
    ] = None,
    validation_last: Annotated[
        str | None,
        typer.Option(metavar="N|DURATION", help="As --heldout-last, of what is left, for validation."),
    ] = None,
    heldout_since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Set aside what is from then on: a number, a date, or '7 days' before the newest.",
        ),
    ] = None,
    validation_since: Annotated[
        str | None, typer.Option(metavar="TIME", help="As --heldout-since, of what is left, for validation.")
    ] = None,
    heldout_users: _HeldoutUsers = 0.0,
    users_out: Annotated[
        Path | None, typer.Option(help="The dataset directory to make of these users.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of the random choice.")] = 0,
    field: Annotated[str, typer.Option(help="The field to split.")] = "items",
) -> None:
    """Set aside a random share of each user's items, the last ones by time or in a sequence, or users."""
    from widenet.data.split import split as run

    last = {"heldout_last": heldout_last, "validation_last": validation_last}
    ends = {**last, "heldout_since": heldout_since, "validation_since": validation_since}
    if users_out is None and not heldout_users:
        made = run(source, out, heldout=heldout, validation=validation, seed=seed, field=field, **ends)
        show(out, made.manifest, made=False)
        return
    if users_out is None or not heldout_users:
        raise OptionError(
            "--heldout-users and --users-out go together: the share, and the directory of these users. Give"
            " both."
        )
    for option in (name for name, given in ends.items() if given is not None):
        raise OptionError(f"--heldout-users must not stand beside `{option}`. Split twice.")
    shares = {"users": heldout_users, "heldout": heldout, "validation": validation, "seed": seed}
    _split_users(source, out, users_out, **shares, field=field)


def _split_users(source: Path, out: Path, users_out: Path, **options: Any) -> None:
    """Set users aside, and show both datasets."""
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
        typer.Option(help="Draw the distributions into this .png or .svg file; needs matplotlib."),
    ] = None,
) -> None:
    """Say how large and how dense a dataset is, and how unevenly its interactions are spread."""
    from widenet.data.description import describe as run

    described = run(source, plot)
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        show_description(source, described)


@app.command("verify")
def verify(source: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset to check.")]) -> None:
    """Read every file of a dataset: compare its checksum, and check every rule of what it holds."""
    from widenet.data.contents import verify as read_and_check
    from widenet.data.manifest import Manifest

    manifest = Manifest.read(source)
    read_and_check(source, manifest)
    show(source, manifest, made=False)
    typer.echo("Every checksum and every rule holds.")
