"""Times programs that do the same job by turns, each in a process that waits while another works."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self

from widenet.plan.machine import available_memory, available_threads

THREADS = available_threads()
"""Threads of every program."""

REST_SECONDS = 0.3
"""Pause before each turn, since OpenMP's threads keep spinning for a while after their last work."""

MEMORY_SHARE = 0.85
"""Share of the free memory that a program may use."""

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Program:
    """One program of a comparison.

    Attributes:
        name: Name of the program in tables.
        place: MODULE:FUNCTION, see `worker.main`.
        arguments: Arguments of the function.
        libraries: Libraries whose versions are reported.
        python: The interpreter that runs it.
        on_device: Whether it computes on a device. Its process gets no limit on memory, since it may map
            much more than it uses.
    """

    name: str
    place: str
    arguments: dict[str, Any]
    libraries: Sequence[str] = ("torch",)
    python: str = sys.executable
    on_device: bool = False


@dataclass
class Measured:
    """Result of a program: seconds per step of each turn and the facts of the last turn, or its problem."""

    program: Program
    seconds: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    steps: int = 1
    problem: str | None = None

    @property
    def median(self) -> float:
        """Median of the seconds per step over the turns."""
        return statistics.median(self.seconds)

    def ratios(self, other: "Measured") -> list[float]:
        """Return this program's time over another's, for each round."""
        return [mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True)]


class ProgramError(Exception):
    """A program could not start or continue."""


class _Worker:
    """A program's process."""

    def __init__(self, program: Program) -> None:
        self.program, self.errors = program, TemporaryFile()  # noqa: SIM115
        memory = 0 if program.on_device else int(MEMORY_SHARE * (available_memory() or sys.maxsize))
        words = [
            program.place,
            json.dumps(program.arguments),
            json.dumps(list(program.libraries)),
            str(memory),
        ]
        self.process = subprocess.Popen(
            [program.python, "-m", "benchmarks.worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=_ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def reply(self) -> dict[str, Any]:
        """Return the program's next reply; raises ProgramError if it reports a problem or has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        reply: dict[str, Any] = (
            json.loads(line) if line else {"problem": f"ended with status {self.process.wait()}"}
        )
        if "problem" in reply:
            self.errors.seek(0)
            output = self.errors.read().decode(errors="replace").strip().splitlines()
            print(f"{self.program.name}: {reply['problem']}: {''.join(output[-1:])}", file=sys.stderr)
            raise ProgramError(reply["problem"])
        return reply

    def turn(self, steps: int) -> dict[str, Any]:
        """Let the program make some steps, and return its reply."""
        assert self.process.stdin is not None
        time.sleep(REST_SECONDS)
        with suppress(BrokenPipeError):  # its last reply has the reason why it ended
            print(steps, file=self.process.stdin, flush=True)
        return self.reply()


def measure(programs: Sequence[Program], rounds: int, turn_seconds: float, warmup: int = 3) -> list[Measured]:
    """Measure the seconds per step of some programs.

    They take turns in the order A B C, C B A, A B C and so on. A program that fails is skipped from then on,
    and its result has the problem.

    Args:
        programs: The programs.
        rounds: Number of rounds.
        turn_seconds: Approximate length of a turn.
        warmup: Untimed turns of one step after the first; the last one decides how many steps fill a turn.
    """
    results = [Measured(program) for program in programs]
    with ExitStack() as stack:
        workers: list[tuple[Measured, _Worker]] = []
        for measured in results:
            worker = stack.enter_context(_Worker(measured.program))
            if _prepared(measured, worker, turn_seconds, warmup):
                workers.append((measured, worker))
        for number in range(rounds):
            for measured, worker in workers if number % 2 == 0 else reversed(workers):
                if measured.problem is None:
                    _take_turn(measured, worker)
    return results


def _prepared(measured: Measured, worker: _Worker, turn_seconds: float, warmup: int) -> bool:
    try:
        measured.versions = worker.reply()["versions"]
        measured.first = worker.turn(1)
        seconds = measured.first["seconds"]
        for _ in range(warmup if seconds < 10 * turn_seconds else 0):
            seconds = worker.turn(1)["seconds"]
        measured.steps = max(1, round(turn_seconds / max(seconds, 1e-6)))
    except ProgramError as error:
        measured.problem = str(error)
    return measured.problem is None


def _take_turn(measured: Measured, worker: _Worker) -> None:
    try:
        measured.facts = worker.turn(measured.steps)
        measured.seconds.append(measured.facts["seconds"] / measured.steps)
    except ProgramError as error:
        measured.problem, measured.seconds = str(error), []
