"""`widenet quantize`."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.json_output import AsJson, print_json
from widenet.cli.options import Run


def quantize(
    run: Run,
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run in 8 bits of a trained one: a quarter of the bytes, for recommending on a CPU.

    Every other command reads it as any run; it is not trained further.
    """
    from widenet.runs.quantizing import quantize as make
    from widenet.runs.smaller import num_bytes
    from widenet.training.existing_run import check_run

    check_run(run)
    made = make(run, out, overwrite)
    after, before = num_bytes(out), num_bytes(run)
    if as_json:
        sizes = {"num_bytes": after, "num_bytes_before": before}
        print_json({"run": out, **sizes, "fingerprint": made.fingerprint()})
        return
    typer.echo(f"{out}: {after:,} bytes of weights; {run} has {before:,}.")
    typer.echo(f"fingerprint {made.fingerprint()}")
