"""`--processes`: the same command line in several processes of one group."""

import sys
from typing import Annotated

import typer

Processes = Annotated[
    int | None,
    typer.Option(help="Local processes, among which the shards are divided. One for each CUDA device if not given, else 1.", min=1),
]


def run_in_processes(context: typer.Context, asked: int | None, device: str | None) -> None:
    """Run this command line in as many processes and exit with their status; return where one is enough, or this is one of them."""
    from widenet.parallel.group import device_for, num_processes

    if num_processes() > 1:
        return
    if asked is None and device_for(device).type == "cuda":
        import torch

        asked = torch.cuda.device_count()
    if asked is None or asked == 1:
        return
    from widenet.parallel.launch import launch

    status, problem = launch(asked, context.obj or sys.argv[1:])
    if problem is not None:
        typer.echo(f"widenet: {problem}", err=True)
    sys.exit(status)
