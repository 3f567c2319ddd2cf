"""Command lines run one after the other, in processes forked from one that has loaded every module and run
nothing.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from tests import unsynced

ROOT = Path(__file__).parent.parent.parent
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
    seconds, processor_seconds: how long it took, and what the processor worked meanwhile.
    """

    status: int
    out: str
    err: str
    seconds: float
    processor_seconds: float
    hung: bool


class Forks:
    """The process that forks, as seen from outside.

    lines_per_process: how many command lines a forked process runs before another takes its place.
    """

    def __init__(self, lines_per_process: int = 1) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WIDENET_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "WIDENET_DEBUG": "",
        }
        command = [sys.executable, "-m", "tests.fuzz.forks", str(lines_per_process)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, words: list[str], folder: Path) -> Ended:
        """Run a command line in a folder, and tell how it ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([words, str(folder)]), file=self.process.stdin, flush=True)
        return Ended(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        """End the process that forks."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve(lines_per_process: int) -> None:
    """Read command lines from standard input, run each in a forked process, and print how it ended."""
    unsynced.begin()
    _load()
    child = None
    for line in sys.stdin:
        words, folder = json.loads(line)
        child = child or _Child()
        print(json.dumps(asdict(child.run(words, Path(folder)))), flush=True)
        if child.ended or child.lines == lines_per_process:
            child.close()
            child = None
    if child:
        child.close()


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
    for name in (
        "duckdb",
        "fastparquet",
        "h5py",
        "netCDF4",
        "onnx",
        "pandas",
        "polars",
        "pyarrow.dataset",
        "scipy.sparse",
    ):
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


class _Child:
    """A process forked from this one, which runs command lines until it is closed or one of them ends it."""

    def __init__(self) -> None:
        self.lines, self.ended, self.processor_seconds = 0, False, 0.0
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.requests)
            os.close(self.answers)
            _answer(os.fdopen(requests), answers)
        os.close(requests)
        os.close(answers)
        self.descriptor = os.pidfd_open(self.pid)

    def run(self, words: list[str], folder: Path) -> Ended:
        """Run a command line in a folder, and tell how it ended."""
        started, self.lines = time.monotonic(), self.lines + 1
        os.write(self.requests, (json.dumps([words, str(folder)]) + "\n").encode())
        ready, _, _ = select.select([self.answers, self.descriptor], [], [], HANG_SECONDS)
        answer = os.read(self.answers, 1000) if self.answers in ready else b""
        if answer:
            status, used = json.loads(answer)
        else:
            status, used = self._end()
        out, err = (path.read_text("utf-8", "backslashreplace") for path in _said(folder))
        spent, self.processor_seconds = used - self.processor_seconds, used
        return Ended(status, out, err, time.monotonic() - started, spent, hung=not ready)

    def _end(self) -> tuple[int, float]:
        """Kill the process where it still runs; its exit status, and its processor time."""
        if not select.select([self.descriptor], [], [], 0)[0]:
            os.killpg(self.pid, signal.SIGKILL)
        _, status, used = os.wait4(self.pid, 0)
        self.ended = True
        return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime

    def close(self) -> None:
        """Let the process end."""
        os.close(self.requests)
        if not self.ended:
            os.waitpid(self.pid, 0)
        os.close(self.answers)
        os.close(self.descriptor)


def _said(folder: Path) -> list[Path]:
    """The files of what a command line in a folder writes to standard output and standard error."""
    return [folder.with_suffix(suffix) for suffix in (".out", ".err")]


def _answer(requests: IO[str], answers: int) -> NoReturn:
    """Be the child: run command lines and end, without what Python does at the end of a process."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in requests:
        words, folder = json.loads(line)
        status = _run(words, Path(folder))
        os.write(answers, json.dumps([status, _used()]).encode())
    os._exit(0)


def _used() -> float:
    """Processor time of this process and of those that it has waited for."""
    found = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in found)


def _limit(what: int, limit: int) -> None:
    """Set a soft limit."""
    resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


def _run(words: list[str], folder: Path) -> int:
    """Run a command line in this process; its exit status."""
    from widenet.cli import main

    os.chdir(folder)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _limit(resource.RLIMIT_AS, mapped + MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, int(_used()) + 2 * PROCESSOR_SECONDS)
    for number, path in enumerate([Path(os.devnull), *_said(folder)]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
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
    return status if isinstance(status, int) else 70


if __name__ == "__main__":
    serve(int(sys.argv[1]))
