"""`--processes`: the same command line in several processes of one group."""

import os
import signal
import sys
import time
from typing import Annotated

import typer

from widenet.cli.wording import on_command_line
from widenet.errors import OptionError
from widenet.parallel.launcher import launcher_variable, started_by_mpi, started_by_pmix_alone

_FIRST_SECONDS = 10.0
"""How long other processes wait, where they make a mistake, for the first one of their machine to say what
it is.
"""

Processes = Annotated[
    int | None,
    typer.Option(
        help=(
            "Local processes, at most as many as shards. One for each CUDA device if not given, else 1. After"
            " Ctrl-C they have 300 seconds to save and end; then, or after a second Ctrl-C, widenet ends"
            " them."
        ),
        min=1,
    ),
]


def speaks() -> bool:
    """Whether this process says what every process of its machine would say: the first one here, or one
    whose launcher sifts.
    """
    return (launcher_variable("LOCAL_RANK") or "0") == "0" or "WIDENET_LAUNCHER" in os.environ


def left_to_the_first() -> bool:
    """Whether another process says what is wrong here, as it makes the same mistake.

    Open MPI ends all processes as soon as one fails, perhaps before the first one has spoken. So the others
    give it time.
    """
    if speaks():
        return False
    if started_by_mpi() or started_by_pmix_alone():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(_FIRST_SECONDS)
    return True


def run_in_processes(context: typer.Context, asked: int | None, device: str | None) -> None:
    """Run this command line in as many processes and exit with their status; return where one is enough,
    or this is one of them.
    """
    from widenet.parallel.group import device_for, num_processes
    from widenet.parallel.launch import end_with_launcher, launch

    end_with_launcher()
    if num_processes() > 1:
        if asked not in (None, num_processes()):
            raise OptionError(
                f"--processes must be left out in a group of {num_processes()} processes, or be their number;"
                f" got {asked}."
            )
        return
    if asked is None and device_for(device).type == "cuda":
        import torch

        asked = torch.cuda.device_count()
    if asked is None or asked == 1:
        return
    status, problem = launch(asked, context.obj or sys.argv[1:])
    if problem is not None:
        typer.echo(f"widenet: {on_command_line(problem)}", err=True)
    sys.exit(status)
