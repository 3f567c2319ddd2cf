"""`widenet data fetch`: published data by name."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.dataset import show
from widenet.cli.json_output import AsJson, print_json
from widenet.cli.progress import IngestReport
from widenet.errors import OptionError


def fetch(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The data to fetch; --list shows the names.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The dataset directory to make.")] = None,
    min_value: Annotated[
        float | None,
        typer.Option(
            help="Keep ratings of at least this value; 0.5 keeps all of MovieLens. Default: 4 where there are"
            " ratings."
        ),
    ] = None,
    accept_licence: Annotated[
        bool, typer.Option("--accept-licence", help="Accept the licence without a question.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier dataset.")] = False,
    show_names: Annotated[bool, typer.Option("--list", help="Show the names of all published data.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download published data once, and make a dataset directory from it.

    The command shows the licence first, which you must accept.
    """
    from widenet.data.fetch import Published, published
    from widenet.data.fetch import fetch as run

    if show_names and as_json:
        print_json([{"name": known.name, "about": known.about} for known in published().values()])
        return
    if show_names:
        for known in published().values():
            typer.echo(f"{known.name:<16}{known.about}")
        return
    if name is None or out is None:
        raise OptionError(
            "name what to fetch, and --out, the dataset directory to make. `widenet data fetch --list` shows"
            " the names."
        )
    try:
        data = Published.find(name)
    except OptionError as error:
        raise OptionError(f"{error} See `widenet data fetch --list`.") from None
    if min_value is not None:
        data = data.with_min_value(min_value)
    typer.echo(f"{data.about}\nLicence: {data.licence.strip()}", err=True)
    if not accept_licence:
        if not sys.stdin.isatty():
            raise OptionError(
                f"the licence of {name} must be accepted. Read it above, and add --accept-licence."
            )
        if not typer.confirm("Do you accept it?", err=True):
            raise OptionError(f"the licence of {name} was not accepted; nothing was read.")
    with IngestReport() as report:
        made = run(
            data, out, overwrite=overwrite, say=report.phase, on_bytes=report.bytes, on_rows=report.rows
        )
    show(out, made.manifest, as_json=as_json)
