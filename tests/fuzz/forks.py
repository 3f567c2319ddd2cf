"""Command lines run one after the other, each in a process forked from one that has loaded every module
and run nothing.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
HANG_SECONDS = 120
"""How long a command may take by the clock, on however busy a machine, before it is killed as one that
hangs.
"""
PROCESSOR_SECONDS = 20
"""Processor time of one command."""
MEMORY_BYTES = 4 * 2**30
"""What a command may map beyond what its parent has mapped."""
_LOOK_SECONDS = 0.002


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
    """The process that forks, as seen from outside."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WIDENET_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "WIDENET_DEBUG": "",
        }
        command = [sys.executable, "-m", "tests.fuzz.forks"]
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


def serve() -> None:
    """Read command lines from standard input, fork for each, and print how it ended."""
    _load()
    for line in sys.stdin:
        words, folder = json.loads(line)
        print(json.dumps(asdict(_forked(words, Path(folder)))), flush=True)


def _load() -> None:
    """Load what commands load, and build what they build at every start, so that a fork begins with its
    work.
    """
    import typer.main
    from numba.core.registry import cpu_target

    import widenet
    from widenet.cli.app import app

    for module in pkgutil.walk_packages(widenet.__path__, "widenet."):
        if "triton" not in module.name and module.name != "widenet.__main__":
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
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    commands: Any = typer.main.get_command(app)
    sys.modules["widenet.cli.app"].app = commands  # type: ignore[attr-defined]
    for command in commands.commands.values():
        _ = command.whole
    gc.freeze()


def _forked(words: list[str], folder: Path) -> Ended:
    """Run a command line in a child of this process."""
    said = [folder.with_suffix(suffix) for suffix in (".out", ".err")]
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(words, folder, said)
    ended, status, used = os.wait4(child, os.WNOHANG)
    while not ended and time.monotonic() - started < HANG_SECONDS:
        time.sleep(_LOOK_SECONDS)
        ended, status, used = os.wait4(child, os.WNOHANG)
    if not ended:
        os.killpg(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    out, err = (path.read_text("utf-8", "backslashreplace") for path in said)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, out, err, time.monotonic() - started, used.ru_utime + used.ru_stime, hung=not ended)


def _run(words: list[str], folder: Path, said: list[Path]) -> None:
    """Be the child: run a command line and end, without what Python does at the end of a process."""
    from widenet.cli import main

    os.setsid()
    os.chdir(folder)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (2 * PROCESSOR_SECONDS,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number, path in enumerate([Path(os.devnull), *said]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 the child's own, until it ends
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


if __name__ == "__main__":
    serve()
