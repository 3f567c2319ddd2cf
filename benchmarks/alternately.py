"""Times programs that do the same job by turns, each in a process that waits while another works."""

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from widenet.plan.machine import available_memory, available_threads

THREADS = available_threads()
"""Threads of every program."""

REST_SECONDS = 0.3
"""Pause before each turn on a CPU, since OpenMP's threads keep spinning for a while after their last work."""

MEMORY_SHARE = 0.85
"""Share of the free memory that a program may use."""

_ROOT = Path(__file__).parent.parent

P = ParamSpec("P")


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


def _noted(work: Callable[Concatenate["_Worker", P], None]) -> Callable[Concatenate["_Worker", P], None]:
    """Make a method of `_Worker` end a program that fails, keep its problem, and do nothing from then on."""

    @wraps(work)
    def noted(worker: "_Worker", /, *arguments: P.args, **named: P.kwargs) -> None:
        if worker.measured.problem is None:
            try:
                work(worker, *arguments, **named)
            except ProgramError as error:
                worker.measured.problem, worker.measured.seconds = str(error), []
                worker.process.kill()

    return noted


class _Worker:
    """A program's process, and what is measured of it.

    A program that has not made its first step at the deadline has failed.
    """

    def __init__(self, program: Program, deadline: float | None = None) -> None:
        self.program, self.measured, self.deadline = program, Measured(program), deadline
        self.errors = TemporaryFile()  # noqa: SIM115
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
        if not self.errors.closed:
            self.process.kill()
            self.process.communicate()
            self.errors.close()

    @_noted
    def start(self) -> None:
        """Wait until the program has started, and let it begin its first step."""
        self.measured.versions = self._reply()["versions"]
        self._begin(1)

    @_noted
    def finish_first_step(self) -> None:
        """Wait for the first step, which may compile."""
        self.measured.first = self._reply()
        self.deadline = None

    @_noted
    def warm_up(self, turn_seconds: float, turns: int) -> None:
        """Take untimed turns of one step; one that is long is the last."""
        seconds = self.measured.first["seconds"]
        for _ in range(turns):
            self._begin(1)
            seconds = self._reply()["seconds"]
            if seconds > 10 * turn_seconds:
                break
        self.measured.steps = max(1, round(turn_seconds / max(seconds, 1e-6)))

    @_noted
    def take_turn(self) -> None:
        """Measure a turn."""
        self._begin(self.measured.steps)
        self.measured.facts = self._reply()
        self.measured.seconds.append(self.measured.facts["seconds"] / self.measured.steps)

    def _reply(self) -> dict[str, Any]:
        """Return the next reply; raises ProgramError for a problem, an ended program, or a late reply."""
        assert self.process.stdout is not None
        if self.deadline is not None:
            seconds = max(0.0, self.deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                raise ProgramError("out of time")
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

    def _begin(self, steps: int) -> None:
        """Let the program make some steps, of which it will tell."""
        assert self.process.stdin is not None
        if not self.program.on_device:
            time.sleep(REST_SECONDS)
        with suppress(BrokenPipeError):  # its last reply has the reason why it ended
            print(steps, file=self.process.stdin, flush=True)


def measure(
    programs: Sequence[Program],
    rounds: int,
    turn_seconds: float,
    warmup: int = 3,
    *,
    together: bool = False,
    deadline: float | None = None,
) -> list[Measured]:
    """Measure the seconds per step of some programs.

    They take turns in the order A B C, C B A, A B C and so on. A program that fails is skipped from then on,
    and its result has the problem.

    Args:
        programs: The programs.
        rounds: Number of rounds.
        turn_seconds: Approximate length of a turn.
        warmup: Untimed turns of one step after the first; the last one decides how many steps fill a turn.
        together: Whether the programs start, and make their first steps, at the same time. The untimed turns
            begin when all have made it.
        deadline: Time of `time.monotonic` until which programs may make their first step.
    """
    with ExitStack() as stack:
        workers: list[_Worker] = []
        for program in programs:
            workers.append(stack.enter_context(_Worker(program, deadline)))
            if not together:
                workers[-1].start()
                workers[-1].finish_first_step()
                workers[-1].warm_up(turn_seconds, warmup)
        if together:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.finish_first_step()
            for worker in workers:
                worker.warm_up(turn_seconds, warmup)
        for number in range(rounds):
            for worker in workers if number % 2 == 0 else reversed(workers):
                worker.take_turn()
    return [worker.measured for worker in workers]


def measure_alone(
    programs: Sequence[Program],
    rounds: int,
    turn_seconds: float,
    warmup: int = 3,
    *,
    deadline: float | None = None,
) -> list[Measured]:
    """Measure programs as `measure` does, but each takes all its turns, and ends, before the next one begins.

    So each has all memory of a device. Their libraries are loaded at the same time.
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(program, deadline)) for program in programs]
        for worker in workers:
            with worker:
                worker.start()
                worker.finish_first_step()
                worker.warm_up(turn_seconds, warmup)
                for _ in range(rounds):
                    worker.take_turn()
    return [worker.measured for worker in workers]
