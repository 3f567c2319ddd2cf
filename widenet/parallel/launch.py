"""Several local processes of one command: started together, watched, and ended together."""

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
from widenet.parallel.announced import by_mpi, facts_of_process

LAUNCHER = "WIDENET_LAUNCHER"
"""Environment variable in which a process that `launch` has started finds a pipe that ends with the one
that did.
"""

SAVE_SECONDS = 300.0
"""Time for all processes to save and end after Ctrl-C or SIGTERM. Then `launch` sends SIGTERM again, which
ends them without saving.
"""
STOP_SECONDS = 10.0
"""Time to end after that, or after a second Ctrl-C. Then `launch` sends SIGKILL."""

_LOOK_SECONDS = 0.1
_SAY_SECONDS = 10.0
_GRACE_SECONDS = 20.0


def launch(num_processes: int, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run `python -m widenet ARGUMENTS` in several processes of one group; the exit status, and what went
    wrong in a sentence.

    The first process speaks for all; of another one only what it said when it failed alone is shown. Ctrl-C
    and SIGTERM go to every process, which then save and end; so they do where this process is killed.
    Processes that do not end get SIGTERM again after SAVE_SECONDS, and SIGKILL STOP_SECONDS later; a second
    Ctrl-C skips the wait. Ctrl-Z pauses all processes. Where one process is lost the others are ended: they
    could only wait for it.
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
    """Let this process get SIGTERM as soon as the one that has started it is gone, where that is `launch`,
    torchrun or mpirun.

    prctl(2) has a signal for that too, but sends it once for every thread of the parent, and a second SIGTERM
    stops at once.
    """
    wait: Callable[[], object]
    if LAUNCHER in os.environ:
        wait = partial(os.read, int(os.environ[LAUNCHER]), 1)
    elif "TORCHELASTIC_RUN_ID" in os.environ or by_mpi():
        try:
            wait = partial(select.select, [os.pidfd_open(os.getppid())], (), ())
        except OSError:  # a kernel or a container that does not let us watch
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
        self.said: list[IO[bytes] | None] = []
        self.asked: int | None = None
        self.signals: list[float] = []
        self.said_to_wait = False
        self.pipe = os.pipe()

    def start(self, num_processes: int, arguments: Sequence[str]) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self.store = TCPStore(
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )  # held here, so that no port is ever taken twice
        told = {
            LAUNCHER: str(self.pipe[0]),
            "WORLD_SIZE": str(num_processes),
            "LOCAL_WORLD_SIZE": str(num_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
        }
        for rank in range(num_processes):
            self.said.append(tempfile.TemporaryFile() if rank else None)  # noqa: SIM115 closed in `end`
            environment = {**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-m", "widenet", *arguments]
            process = subprocess.Popen(  # noqa: S603 our own command
                command,
                env=environment,
                stderr=self.said[rank],
                pass_fds=self.pipe[:1],
                start_new_session=True,
            )
            self.processes.append(process)
        if self.asked is not None:
            self._send(self.asked)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Hand a signal to every process."""
        del frame
        self.asked = number
        self.signals.append(time.monotonic())
        self._send(number)

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Stop every process and this one; let all continue when this one does."""
        del number, frame
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)

    def watch(self) -> tuple[int, str | None]:
        """Wait until all have ended, or one has failed and the others have had their time to end too."""
        while (statuses := self._statuses()) and None in statuses:
            failed = [status for status in statuses if status and not self._is_answer(status)]
            if failed:
                self._wait(_GRACE_SECONDS if self.asked is not None or min(failed) > 0 else 0.0)
                break
            if self.signals and not self._press():
                break
            time.sleep(_LOOK_SECONDS)
        stuck = self._stuck()
        ended = [(rank, status) for rank, status in enumerate(self._statuses()) if status]
        status, problem = self._judged(*min(ended, key=_blame)) if ended else (130 if stuck else 0, None)
        if stuck and (problem is None or self.asked is not None):
            killed = f"{self._name(stuck)} did not end and was killed."
            problem = killed if problem is None else f"{problem} {killed.capitalize()}"
        return status, problem

    def _is_answer(self, status: int) -> bool:
        """Whether a process ended with this status because it was asked to."""
        return self.asked is not None and status in (-signal.SIGINT, -signal.SIGTERM, 130)

    def _press(self) -> bool:
        """Ask processes that do not end after Ctrl-C or SIGTERM more firmly; False once they had all the
        time there is.
        """
        waited = time.monotonic() - self.signals[-1]
        if len(self.signals) > 1:
            return waited < STOP_SECONDS
        if waited > _SAY_SECONDS and not self.said_to_wait:
            self.said_to_wait = True
            at_once = (
                f"Ctrl-C again ends at once, without saving; widenet does so after {SAVE_SECONDS:.0f} seconds"
            )
            self._say(f"waiting for {self._name(self._stuck())} to save and end. {at_once}.")
        if waited > SAVE_SECONDS:
            late = f"{self._name(self._stuck())} did not end within {SAVE_SECONDS:.0f} seconds"
            self._say(f"{late}: sending SIGTERM again, and SIGKILL in {STOP_SECONDS:.0f} seconds.")
            self.forward(signal.SIGTERM, None)
        return True

    def _stuck(self) -> list[int]:
        return [rank for rank, status in enumerate(self._statuses()) if status is None]

    def _name(self, ranks: list[int]) -> str:
        """The processes of some ranks: "process 1 of 3", "processes 1 and 2 of 3"."""
        *most, last = map(str, ranks)
        return (
            f"process{'es' if most else ''} {', '.join(most)}{' and ' if most else ''}{last} of"
            f" {len(self.processes)}"
        )

    def _say(self, text: str) -> None:
        sys.stderr.write(f"widenet: {text}\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave nothing running."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for end in self.pipe:
            os.close(end)
        for said in self.said:
            if said is not None:
                said.close()

    def _judged(self, rank: int, status: int) -> tuple[int, str | None]:
        """The group's exit status and a sentence, when this process is the one that failed."""
        size, first = len(self.processes), self.processes[0].returncode
        if self._is_answer(status):
            return 130, None if first == 130 else "interrupted."
        said = self.said[rank]
        if said is not None and status > 0 and status != first:
            said.seek(0)
            sys.stderr.flush()
            shutil.copyfileobj(said, sys.stderr.buffer)
            sys.stderr.buffer.flush()
        if status in (2, 130):
            return status, None
        if status == GroupError.status:
            return status, None
        name = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        lost = (
            f"process {rank} of {size} was lost ({name}); the others were ended. Start again; a training goes"
            " on with --resume."
        )
        return GroupError.status if status < 0 else 1, lost

    def _statuses(self) -> list[int | None]:
        return [process.poll() for process in self.processes]

    def _wait(self, seconds: float) -> None:
        """Wait for those that have not ended; a stopped process will not end by itself."""
        deadline = time.monotonic() + seconds
        while (
            (stuck := self._stuck()) and time.monotonic() < deadline and not all(map(self._is_stopped, stuck))
        ):
            time.sleep(_LOOK_SECONDS)

    def _is_stopped(self, rank: int) -> bool:
        """Whether a process was stopped by a signal such as SIGSTOP."""
        try:
            return facts_of_process(self.processes[rank].pid)[0] in ("T", "t")
        except OSError:
            return False

    def _send(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


def _blame(ended: tuple[int, int]) -> int:
    """Less for a likelier cause: a signal, then a failure, then a user's mistake; last, that another
    process was lost.
    """
    status = ended[1]
    return -1 if status < 0 else {GroupError.status: 3, 130: 2, WidenetError.status: 1}.get(status, 0)
