"""Runs a command in several local processes: starts them together, watches them, ends them together."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import IO

from widenet.errors import GroupError, OptionError, WidenetError
from widenet.parallel.launcher import process_status, started_by_mpi

LAUNCHER = "WIDENET_LAUNCHER"
"""Environment variable with the descriptor of a pipe, which closes when the launching process ends."""

SAVE_SECONDS = 300.0
"""Time to save and end after Ctrl-C or SIGTERM; then `launch` sends SIGTERM again, which ends at once."""
STOP_SECONDS = 10.0
"""Time to end after that, or after a second Ctrl-C; then `launch` sends SIGKILL."""

_POLL_SECONDS = 0.1
_NOTICE_SECONDS = 10.0
_GRACE_SECONDS = 20.0


def launch(num_processes: int, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run `python -m widenet ARGUMENTS` in several processes of one group.

    - Output is that of the first process. What another one wrote to standard error is shown only if it failed
      and the first did not fail in the same way.
    - Ctrl-C and SIGTERM go to every process, which then save and end; they also do so if this process is
      killed. A process that does not end gets SIGTERM again after SAVE_SECONDS, and SIGKILL STOP_SECONDS
      later. A second Ctrl-C skips the wait.
    - Ctrl-Z pauses all processes.
    - If one process is lost, the others are ended, since they could only wait for it.

    Returns:
        The exit status, and a sentence about what went wrong; None if nothing did.
    """
    if num_processes < 1:
        raise OptionError(f"the number of processes must be at least 1; got {num_processes}.")
    group = _Group()
    handlers = {signal.SIGINT: group.forward, signal.SIGTERM: group.forward, signal.SIGTSTP: group.pause}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        group.start(num_processes, arguments)
        return group.watch()
    finally:
        group.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_launcher() -> None:
    """Send SIGTERM to this process as soon as its launcher (`launch`, torchrun or mpirun) has ended.

    prctl(2) can do this too, but it sends the signal once for every thread of the parent, and a second
    SIGTERM ends a training without saving.
    """
    wait: Callable[[], object]
    if LAUNCHER in os.environ:
        wait = partial(os.read, int(os.environ[LAUNCHER]), 1)
    elif "TORCHELASTIC_RUN_ID" in os.environ or started_by_mpi():
        try:
            wait = partial(select.select, [os.pidfd_open(os.getppid())], (), ())
        except OSError:  # the kernel or the container does not allow it
            return
    else:
        return
    threading.Thread(target=_terminate_after, args=(wait,), name="launcher", daemon=True).start()


def _terminate_after(wait: Callable[[], object]) -> None:
    wait()
    os.kill(os.getpid(), signal.SIGTERM)


class _Group:
    """The processes, in order of their ranks."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.errors: list[IO[bytes] | None] = []
        """Standard error of each process; None for the first, which writes to this process's own."""
        self.signal: int | None = None
        """The latest signal that was sent to the processes, and in `signal_times` when each was sent."""
        self.signal_times: list[float] = []
        self.has_noticed = False
        self.pipe = os.pipe()

    def start(self, num_processes: int, arguments: Sequence[str]) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # Held in this process, so that no port is ever taken twice.
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables = {
            LAUNCHER: str(self.pipe[0]),
            "WORLD_SIZE": str(num_processes),
            "LOCAL_WORLD_SIZE": str(num_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
        }
        for rank in range(num_processes):
            self.errors.append(tempfile.TemporaryFile() if rank else None)  # noqa: SIM115 closed in `end`
            environment = {**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-m", "widenet", *arguments]
            process = subprocess.Popen(  # noqa: S603 our own command
                command,
                env=environment,
                stderr=self.errors[rank],
                pass_fds=self.pipe[:1],
                start_new_session=True,
            )
            self.processes.append(process)
        if self.signal is not None:
            self._send(self.signal)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Send a signal to every process."""
        del frame
        self.signal = number
        self.signal_times.append(time.monotonic())
        self._send(number)

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Stop every process and this one; when this one continues, all continue."""
        del number, frame
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)

    def watch(self) -> tuple[int, str | None]:
        """Wait until all have ended, or one has failed and the others have had time to end; see `launch`."""
        while (statuses := self._statuses()) and None in statuses:
            failed = [status for status in statuses if status and not self._is_by_signal(status)]
            if failed:
                self._wait(_GRACE_SECONDS if self.signal is not None or min(failed) > 0 else 0.0)
                break
            if self.signal_times and not self._wait_after_signal():
                break
            time.sleep(_POLL_SECONDS)
        running = self._running()
        ended = [(rank, status) for rank, status in enumerate(self._statuses()) if status]
        status, problem = self._outcome(*min(ended, key=_blame)) if ended else (130 if running else 0, None)
        if running and (problem is None or self.signal is not None):
            killed = f"{self._name(running)} did not end and was killed."
            problem = killed if problem is None else f"{problem} {killed.capitalize()}"
        return status, problem

    def _is_by_signal(self, status: int) -> bool:
        """Whether a process ended with this status because of a signal that this one sent."""
        return self.signal is not None and status in (-signal.SIGINT, -signal.SIGTERM, 130)

    def _wait_after_signal(self) -> bool:
        """After Ctrl-C or SIGTERM: print notices, send SIGTERM again in time; False when time is up."""
        waited = time.monotonic() - self.signal_times[-1]
        if len(self.signal_times) > 1:
            return waited < STOP_SECONDS
        if waited > _NOTICE_SECONDS and not self.has_noticed:
            self.has_noticed = True
            _print(
                f"waiting for {self._name(self._running())} to save and end. Ctrl-C again ends at once,"
                f" without saving; widenet does so after {SAVE_SECONDS:.0f} seconds."
            )
        if waited > SAVE_SECONDS:
            late = f"{self._name(self._running())} did not end within {SAVE_SECONDS:.0f} seconds"
            _print(f"{late}: sending SIGTERM again, and SIGKILL in {STOP_SECONDS:.0f} seconds.")
            self.forward(signal.SIGTERM, None)
        return True

    def _running(self) -> list[int]:
        return [rank for rank, status in enumerate(self._statuses()) if status is None]

    def _name(self, ranks: list[int]) -> str:
        """Name the processes of some ranks: "process 1 of 3", "processes 1 and 2 of 3"."""
        *most, last = map(str, ranks)
        size = len(self.processes)
        return f"processes {', '.join(most)} and {last} of {size}" if most else f"process {last} of {size}"

    def end(self) -> None:
        """Kill what still runs, and close pipe and files."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for end in self.pipe:
            os.close(end)
        for errors in self.errors:
            if errors is not None:
                errors.close()

    def _outcome(self, rank: int, status: int) -> tuple[int, str | None]:
        """The group's exit status and problem if this process is the one that failed; see `launch`."""
        size, first = len(self.processes), self.processes[0].returncode
        if self._is_by_signal(status):
            return 130, None if first == 130 else "interrupted."
        errors = self.errors[rank]
        if errors is not None and status > 0 and status != first:
            errors.seek(0)
            sys.stderr.flush()
            shutil.copyfileobj(errors, sys.stderr.buffer)
            sys.stderr.buffer.flush()
        if status in (2, 130, GroupError.status):
            return status, None
        name = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        lost = (
            f"process {rank} of {size} was lost ({name}); the others were ended."
            " Start again; resume a training with `resume=True`."
        )
        return GroupError.status if status < 0 else 1, lost

    def _statuses(self) -> list[int | None]:
        return [process.poll() for process in self.processes]

    def _wait(self, seconds: float) -> None:
        """Wait for processes that still run, unless all of them are stopped and cannot end by themselves."""
        deadline = time.monotonic() + seconds
        while (running := self._running()) and time.monotonic() < deadline:
            if all(map(self._is_stopped, running)):
                break
            time.sleep(_POLL_SECONDS)

    def _is_stopped(self, rank: int) -> bool:
        """Whether a process was stopped by a signal such as SIGSTOP."""
        try:
            return process_status(self.processes[rank].pid)[0] in ("T", "t")
        except OSError:
            return False

    def _send(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


def _print(text: str) -> None:
    sys.stderr.write(f"widenet: {text}\n")
    sys.stderr.flush()


def _blame(ended: tuple[int, int]) -> int:
    """Sort key of (rank, status): likelier causes first.

    A signal comes first, then a failure, then a user's mistake, then an interruption; last, a process that
    only reports the loss of another.
    """
    status = ended[1]
    return -1 if status < 0 else {GroupError.status: 3, 130: 2, WidenetError.status: 1}.get(status, 0)
