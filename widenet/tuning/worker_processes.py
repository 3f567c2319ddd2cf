"""The workers of a study as processes of this machine: started, followed, replaced when they are lost."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from widenet import errors
from widenet.errors import GroupError, WidenetError
from widenet.parallel.launch import LAUNCHER, SAVE_SECONDS
from widenet.plan.machine import available_threads
from widenet.tuning.reports import StudyReport
from widenet.tuning.study import Study

_ENDED = "ended"
_LAST_WORDS_SECONDS = 5.0
_INTERRUPTED = 130
"""Exit status of a worker that Ctrl-C or SIGTERM has ended."""


class Telling(StudyReport):
    """The report of a worker: a line of JSON on standard output for each call."""

    def _tell(self, name: str, *values: Any) -> None:
        sys.stdout.write(f"{json.dumps([name, *values])}\n")
        sys.stdout.flush()

    def begin(self, trial: int, start: int, stop: int) -> None:
        """See `StudyReport.begin`."""
        self._tell("begin", trial, start, stop)

    def epoch(self, trial: int, record: dict[str, Any]) -> None:
        """See `StudyReport.epoch`."""
        self._tell("epoch", trial, record)

    def reach(self, trial: int, epochs: int, value: float) -> None:
        """See `StudyReport.reach`."""
        self._tell("reach", trial, epochs, value)

    def fail(self, trial: int, problem: str) -> None:
        """See `StudyReport.fail`."""
        self._tell("fail", trial, problem)

    def say(self, text: str) -> None:
        """See `StudyReport.say`."""
        self._tell("say", text)

    def error(self, error: WidenetError) -> None:
        """Tell why the worker ends."""
        self._tell("error", type(error).__name__, str(error))


class _Worker:
    """One process; whether it has begun a trial yet."""

    def __init__(self, number: int, command: list[str], environment: Mapping[str, str]) -> None:
        self.number, self.has_begun = number, False
        self.process = subprocess.Popen(  # noqa: S603 our own command
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


_Heard = queue.Queue[tuple[_Worker, str, list[Any]]]


def run_workers(study: Study, data: Path, num_trials: int, num_workers: int, report: StudyReport) -> None:
    """Run a study in several processes until it is over.

    A worker that a signal ends is replaced, unless it had not begun any trial. Ctrl-C and SIGTERM let every
    worker save a checkpoint; so does the end of this process.

    Raises:
        KeyboardInterrupt: After Ctrl-C or SIGTERM, when all workers have ended.
        GroupError: All workers were lost before they had begun a trial.
        WidenetError: What a worker cannot go on with.
    """
    heard: _Heard = queue.Queue()
    command = [sys.executable, "-m", "widenet.tuning", str(study.path), str(data), str(num_trials)]
    with _ending() as workers:

        def start(number: int) -> None:
            workers.append(_Worker(number, command, _environment(study, number, num_workers)))
            threading.Thread(target=_hear, args=(workers[-1], heard), daemon=True).start()

        for number in range(num_workers):
            start(number)
        while workers:
            worker, name, values = heard.get()
            if name == _ENDED:
                workers.remove(worker)
                if _is_lost(worker, report):
                    start(worker.number)
            else:
                _pass_on(worker, name, values, report)
    with study.journal.alone():
        if not study.journal.trials():
            raise GroupError("all workers were lost before they had begun a trial. Resume the study.")


def _is_lost(worker: _Worker, report: StudyReport) -> bool:
    """Return whether another worker must take the place of one that has ended."""
    status = worker.process.returncode
    if status == _INTERRUPTED:
        raise KeyboardInterrupt
    if status == 0:
        return False
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    then = "another one takes its place" if worker.has_begun else "it had not begun a trial"
    report.say(f"Worker {worker.number} was lost ({how}); {then}.")
    return worker.has_begun


def _pass_on(worker: _Worker, name: str, values: list[Any], report: StudyReport) -> None:
    """Hand a call of a worker's report to this one; raise the error that it tells."""
    if name == "error":
        kind, text = values
        raise getattr(errors, kind)(text)
    worker.has_begun = worker.has_begun or name == "begin"
    getattr(report, name)(*values)


def _hear(worker: _Worker, heard: _Heard) -> None:
    """Queue what a worker tells, and then that it has ended."""
    assert worker.process.stdout is not None
    reader = threading.Thread(target=_read, args=(worker, worker.process.stdout, heard), daemon=True)
    reader.start()
    worker.process.wait()
    reader.join(_LAST_WORDS_SECONDS)  # processes that it has started may hold its output open
    heard.put((worker, _ENDED, []))


def _read(worker: _Worker, lines: IO[str], heard: _Heard) -> None:
    """Queue what a worker tells; other lines, which a library may print, are passed on as they are."""
    with lines:
        for line in lines:
            try:
                name, *values = json.loads(line)
            except (TypeError, ValueError):
                name, values = "say", [line.rstrip()]
            heard.put((worker, name, values))


def _environment(study: Study, number: int, num_workers: int) -> dict[str, str]:
    """Return the variables of a worker: its share of the processors, and one of the CUDA devices."""
    own = {LAUNCHER: f"{os.getpid()}"}
    environment = {"WIDENET_THREADS": f"{available_threads(num_workers)}", **os.environ, **own}
    if study.facts.device == "cuda":
        import torch

        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else [f"{each}" for each in range(torch.cuda.device_count())]
        environment["CUDA_VISIBLE_DEVICES"] = names[number % len(names)]
    return environment


@contextmanager
def _ending() -> Iterator[list[_Worker]]:
    """End the workers of a list with the block; after an error they have time to save."""
    workers: list[_Worker] = []
    try:
        yield workers
    except BaseException:
        for worker in workers:
            worker.process.terminate()
        deadline = time.monotonic() + SAVE_SECONDS
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
        raise
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait()
