"""`--processes`: runs one command line in several processes of a group."""

import os
import signal
import sys
import time
from typing import Annotated

import typer

from widenet.errors import OptionError
from widenet.parallel.launch import launcher_variable, started_by_mpi

_FIRST_SECONDS = 10.0
"""Seconds that a process waits after a mistake, so that the first one of its machine can report it."""

Processes = Annotated[
    int | None,
    typer.Option(
        help=(
            "Number of local processes, at most the number of shards. Default: one for each CUDA device, else"
            " 1. After Ctrl-C they have 300 seconds to save and exit; after that, or after a second Ctrl-C,"
            " widenet kills them."
        ),
        min=1,
    ),
]


def speaks() -> bool:
    """Whether this process prints what every process of its machine would print.

    True for the first process of a machine, and below widenet's own launcher, which removes repetitions.
    """
    return (launcher_variable("LOCAL_RANK") or "0") == "0" or "WIDENET_LAUNCHER" in os.environ


def is_one_of_several() -> bool:
    """Whether a launcher has started this process as one of several."""
    return (launcher_variable("WORLD_SIZE") or "1") != "1"


def leads() -> bool:
    """Whether this process prints results and writes files for its group; loads no torch."""
    if "torch" in sys.modules:
        from widenet.parallel.group import is_leader

        return is_leader()
    return not is_one_of_several() or launcher_variable("RANK") == "0"


def left_to_the_first() -> bool:
    """Whether another process reports the mistake of this one, because it makes the same.

    Open MPI ends all processes as soon as one fails, so the others wait until the first one has reported.
    """
    if speaks():
        return False
    if started_by_mpi():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(_FIRST_SECONDS)
    return True


def run_in_processes(context: typer.Context, number: int | None, device: str | None) -> None:
    """Run this command line in several processes, and exit with their status.

    Returns if one process is enough, or if this is one of the several.
    """
    from widenet.parallel.group import device_for, num_processes
    from widenet.parallel.launch import end_with_launcher, launch

    end_with_launcher()
    if num_processes() > 1:
        if number not in (None, num_processes()):
            rule = f"must be {num_processes()}, as the launcher started, or left out"
            raise OptionError(rule, option="processes", value=number)
        return
    if number is None and device_for(device).type == "cuda":
        import torch

        number = torch.cuda.device_count()
    if number is None or number == 1:
        return
    status, problem = launch(number, context.obj or sys.argv[1:])
    if problem is not None:
        typer.echo(f"widenet: {problem}", err=True)
    sys.exit(status)
