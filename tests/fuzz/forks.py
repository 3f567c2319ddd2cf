"""Command lines run one after the other, each in a process forked from one that has loaded every module and
run nothing.
"""

import contextlib
import gc
import importlib
import multiprocessing
import os
import pkgutil
import resource
import select
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from tests import unsynced

CONTEXT = multiprocessing.get_context("forkserver")
HANG_SECONDS = 120
"""How long a command may take by the clock, on however busy a machine, before it is killed as one that
hangs.
"""
PROCESSOR_SECONDS = 20
"""Processor time of one command."""
MEMORY_BYTES = 4 * 2**30
"""What a command may map beyond what its parent has mapped."""


@dataclass(frozen=True)
class Ended:
    """How a command line ended.

    status: the exit status, or minus the signal that ended it. hung: it was killed for taking too long.
    processor_seconds: what the processor worked meanwhile.
    """

    status: int
    out: str
    err: str
    processor_seconds: float
    hung: bool


class Forks:
    """The process that forks, as seen from outside."""

    def __init__(self) -> None:
        self.end, there = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_serve, args=(there,), daemon=True)
        self.process.start()
        there.close()

    def run(self, words: list[str], folder: Path) -> Ended:
        """Run a command line in a folder, and tell how it ended."""
        self.end.send((words, folder))
        ended: Ended = self.end.recv()
        return ended

    def close(self) -> None:
        """End the process that forks."""
        self.end.close()
        self.process.join()


def _serve(end: Connection) -> None:
    """Receive command lines, run each in a forked process, and send how it ended."""
    unsynced.begin()
    os.environ |= {"WIDENET_THREADS": "1", "OMP_NUM_THREADS": "1", "WIDENET_DEBUG": ""}
    _load()
    while True:
        try:
            words, folder = end.recv()
        except EOFError:
            os._exit(0)
        end.send(_forked(words, folder))


def _load() -> None:
    """Load what commands load, and build what they build at every start, so that a fork begins with its
    work.
    """
    import typer.main

    import widenet
    from widenet.cli.app import app

    def refuse(name: str) -> None:
        assert name == "widenet.spark", name  # no command loads it, and it needs its extra

    for module in pkgutil.walk_packages(widenet.__path__, "widenet.", refuse):
        is_loaded = "triton" not in module.name and not module.name.startswith("widenet.spark")
        if is_loaded and module.name != "widenet.__main__":
            importlib.import_module(module.name)
    for name in ("duckdb", "h5py", "netCDF4", "onnx", "pandas", "polars", "pyarrow.dataset", "scipy.sparse"):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    commands: Any = typer.main.get_command(app)
    sys.modules["widenet.cli.app"].app = commands  # type: ignore[attr-defined]
    typer_main: Any = typer.main
    make = typer_main.get_command
    typer_main.get_command = lambda given: commands if given is commands else make(given)
    for command in commands.commands.values():
        _ = command.whole
    gc.freeze()


def _forked(words: list[str], folder: Path) -> Ended:
    """Run a command line in a forked process; kill it where it takes too long."""
    child = os.fork()
    if child == 0:
        _run(words, folder)
    descriptor = os.pidfd_open(child)
    hung = not select.select([descriptor], [], [], HANG_SECONDS)[0]
    if hung:
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    os.close(descriptor)
    out, err = (path.read_text("utf-8", "backslashreplace") for path in _said(folder))
    return Ended(os.waitstatus_to_exitcode(status), out, err, used.ru_utime + used.ru_stime, hung)


def _said(folder: Path) -> list[Path]:
    """The files of what a command line in a folder writes to standard output and standard error."""
    return [folder.with_suffix(suffix) for suffix in (".out", ".err")]


def _limit(what: int, limit: int) -> None:
    """Set a soft limit."""
    resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


def _run(words: list[str], folder: Path) -> NoReturn:
    """Be the command line, and end without what Python does at the end of a process."""
    from widenet.cli import main

    os.setsid()
    os.chdir(folder)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, mapped + MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, 2 * PROCESSOR_SECONDS)
    for number, path in enumerate([Path(os.devnull), *_said(folder)]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 the command line's own
    status: object = 70
    try:
        main(words)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 70)
