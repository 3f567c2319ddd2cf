"""What commands say of a run that they have made smaller."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from widenet.cli.json_output import print_json

if TYPE_CHECKING:
    from widenet.runs.model import Model


def say_smaller(run: Path, made: "Model", out: Path, as_json: bool) -> None:
    """Print the bytes of weights of a run and of the one that was made of it, and its fingerprint."""
    from widenet.runs.made_of import num_bytes

    after, before = num_bytes(out), num_bytes(run)
    if as_json:
        sizes = {"num_bytes": after, "num_bytes_before": before}
        print_json({"run": out, **sizes, "fingerprint": made.fingerprint()})
        return
    typer.echo(f"{out}: {after:,} bytes of weights; {run} has {before:,}.")
    typer.echo(f"fingerprint {made.fingerprint()}")
