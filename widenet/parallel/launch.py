"""How the processes of a group are started and watched.

torchrun, mpirun, Slurm or a launcher of our own starts them, and their variables say who is who. Each process
has a thread for its collectives, and threads that find out which of the others is lost.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, TypeVar

from widenet.errors import GroupError, OptionError, WidenetError

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

T = TypeVar("T")

LAUNCHER = "WIDENET_LAUNCHER"
"""Environment variable with the process id of our own launcher, in the processes that it has started."""

SAVE_SECONDS = 300.0
"""Time to save and end after Ctrl-C or SIGTERM; then `launch` kills what has not ended."""
STOP_SECONDS = 10.0
"""Time to end after a second Ctrl-C or SIGTERM."""

TIMEOUT_SECONDS = 60.0
"""Default time without a heartbeat after which the others report a process as lost."""
JOIN_SECONDS = 600.0
"""Seconds for which the processes of a group wait for one that has not joined."""
STUCK_SECONDS = 10.0
"""Seconds after a loss for which a device may be busy before it counts as waiting for the lost process."""

_LOST_SHARE = 0.8
"""Share of the timeout after which a silent process is lost; in the rest the others learn of it."""
_BEATS, _LONGEST_PAUSE_SECONDS = 12, 5.0
"""Smallest number of heartbeats in a timeout, and the longest pause between two."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0
"""Time to end for the others after one has failed."""

_ENDING = (signal.SIGINT, signal.SIGTERM)
"""The signals that `launch` passes on. Its processes start with both blocked, so that none is lost or ends a
process in the middle of an import.
"""

_MPI: tuple[Mapping[str, str], ...] = (
    {
        "RANK": "OMPI_COMM_WORLD_RANK",
        "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
        "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
        "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
    },
    {
        "RANK": "PMI_RANK",
        "WORLD_SIZE": "PMI_SIZE",
        "LOCAL_RANK": "MPI_LOCALRANKID",
        "LOCAL_WORLD_SIZE": "MPI_LOCALNRANKS",
    },
)
"""Variables of Open MPI, and of Hydra, the launcher of MPICH and Intel MPI.

`srun --mpi=pmi2` sets only two of Hydra's.
"""

_SLURM = {
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
    "MASTER_ADDR": "SLURM_LAUNCH_NODE_IPADDR",
}

_NO_ID = "none"
"""torchrun's id of a launch that was given no id."""


def launcher_variable(name: str) -> str | None:
    """Return the value of an environment variable of torchrun, or of the launcher's own variable for it.

    For WORLD_SIZE, Slurm's SLURM_NTASKS cannot be used: it is also set in a batch script that starts one
    process without srun.
    """
    names, host = _names(), ""
    if name == "MASTER_ADDR" and names is _SLURM:
        host = _first_host(os.environ.get("SLURM_STEP_NODELIST", ""))
    return os.environ.get(name) or host or os.environ.get(names.get(name, ""), None)


def _names() -> Mapping[str, str]:
    """The launcher's own name of each variable of torchrun.

    mpirun comes before Slurm: within a Slurm job it starts its daemons by srun, and Slurm's variables
    describe those.
    """
    of_mpi = (names for names in _MPI if all(variable in os.environ for variable in names.values()))
    return next(of_mpi, _SLURM)


def _first_host(nodes: str) -> str:
    """The first host of a Slurm node list: "a01" for "a[01-04,7],b3"; empty for an empty list."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first[0]) if first else ""


def leave_launcher() -> None:
    """Forget the launcher of this process: from now on it is one process alone.

    For processes that another program has started, which may have inherited a launcher's variables.
    """
    for names in (*_MPI, _SLURM):
        for variable in (*names, *names.values()):
            os.environ.pop(variable, None)


def started_by_mpi() -> bool:
    """Whether mpirun has started this process directly, without another launcher in between."""
    return _names() in _MPI and not {LAUNCHER, "TORCHELASTIC_RUN_ID"} & set(os.environ)


def launcher_identity() -> str:
    """A name for the launcher of this group's processes on this machine.

    The launcher is the nearest ancestor without a rank in its environment. A script that wraps each process
    has one.
    """
    rank, pid = f"{_names()['RANK']}=".encode(), os.getppid()
    with suppress(PermissionError):  # another user's process, such as a daemon of a cluster
        while pid > 1 and b"\0" + rank in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            pid = int(_status(pid)[1])
    return f"{pid}-{_status(pid)[19]}"


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: 1 is the parent, 19 the start time; see proc(5)."""
    # The name stands in parentheses and may hold any bytes.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def launch_name() -> str:
    """Name the launch by torchrun, all of whose attempts have the same; empty without torchrun.

    torchrun calls all launches "none" that are given no id. The name of such a one has the agent that started
    this process, with the time of its start and of its machine's; it is empty where the system hides them.
    """
    name, agent = os.environ.get("TORCHELASTIC_RUN_ID") or "", os.getppid()
    if name != _NO_ID:
        return name
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{name} {boot} {agent} {_status(agent)[19]}"
    except OSError:
        return ""


def end_with_launcher() -> None:
    """Send SIGTERM to this process as soon as its launcher (`launch`, torchrun or mpirun) has ended.

    From now on, Ctrl-C and SIGTERM reach a process of `launch`.

    prctl(2) can do this too, but it sends the signal once for every thread of the parent, and a second
    SIGTERM ends a training without saving.
    """
    launcher = int(os.environ.get(LAUNCHER) or os.getppid())
    if LAUNCHER in os.environ or "TORCHELASTIC_RUN_ID" in os.environ or started_by_mpi():
        threading.Thread(target=_follow, args=(launcher,), name="launcher", daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def launch(num_processes: int, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run `python -m widenet ARGUMENTS` in several processes of one group.

    - Output is that of the first process. What another one wrote to standard error is shown only if it failed
      and the first did not fail in the same way.
    - Ctrl-C and SIGTERM go to every process, which then save and end; they also do so if this process is
      killed. A process that does not end within SAVE_SECONDS is killed, or within STOP_SECONDS of a second
      Ctrl-C.
    - Ctrl-Z pauses all processes.
    - If one process is lost, the others are ended, since they could only wait for it.

    Returns:
        The exit status, and a sentence about what went wrong; None if nothing did.
    """
    OptionError.require(num_processes >= 1, "must be at least 1", option="processes", value=num_processes)
    with ExitStack() as stack:
        group = _Group()
        handlers = {signal.SIGINT: group.forward, signal.SIGTERM: group.forward, signal.SIGTSTP: group.pause}
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        stack.callback(group.end)
        group.start(num_processes, arguments, stack)
        return group.outcome(group.wait())


class _Group:
    """The processes, in order of their ranks."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.errors: list[IO[bytes] | None] = []
        """Standard error of each process; None for the first, which writes to this process's own."""
        self.is_ending, self.deadline = False, float("inf")
        """Whether the processes were told to end, and when what still runs is killed."""

    def start(self, num_processes: int, arguments: Sequence[str], files: ExitStack) -> None:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # Held in this process, so that no port is ever taken twice.
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables = {
            LAUNCHER: str(os.getpid()),
            "WORLD_SIZE": str(num_processes),
            "LOCAL_WORLD_SIZE": str(num_processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
        }
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            for rank in range(num_processes):
                self.errors.append(files.enter_context(tempfile.TemporaryFile()) if rank else None)  # noqa: SIM115
                process = subprocess.Popen(  # noqa: S603 our own command
                    [sys.executable, "-m", "widenet", *arguments],
                    env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stderr=self.errors[rank],
                    start_new_session=True,
                )
                self.processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Tell every process to end."""
        self.deadline = time.monotonic() + (STOP_SECONDS if self.is_ending else SAVE_SECONDS)
        self.is_ending = True
        self._send(number)

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Stop every process and this one; when this one continues, all continue."""
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)

    def wait(self) -> list[int | None]:
        """Wait until all have ended, or those that have not have had time to; return their statuses."""
        while None in (statuses := [process.poll() for process in self.processes]):
            failed = [status for status in statuses if status and not self._is_told(status)]
            if failed:
                # Of a process that was killed, the others may know nothing.
                seconds = _GRACE_SECONDS if self.is_ending or min(failed) > 0 else 0.0
                self.deadline = min(self.deadline, time.monotonic() + seconds)
            if time.monotonic() >= self.deadline:
                break
            time.sleep(_POLL_SECONDS)
        return statuses

    def outcome(self, statuses: Sequence[int | None]) -> tuple[int, str | None]:
        """Return the group's exit status and problem; see `launch`."""
        running = [rank for rank, status in enumerate(statuses) if status is None]
        ended = [(rank, status) for rank, status in enumerate(statuses) if status]
        rank, status = min(ended, key=_blame, default=(0, 130 if running else 0))
        if self._is_told(status):
            status = 130
        errors, problems = self.errors[rank], list[str]()
        if errors is not None and 0 < status != statuses[0]:
            errors.seek(0)
            shutil.copyfileobj(errors, sys.stderr.buffer)
            sys.stderr.buffer.flush()
        if status not in (0, 2, 130, GroupError.status):
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            problems.append(f"process {rank} of {len(statuses)} was lost ({how}).")
            status = GroupError.status if status < 0 else 1
        if self.is_ending or not problems:
            problems += [f"process {rank} of {len(statuses)} did not end and was killed." for rank in running]
        return status, " ".join(problems) or None

    def _is_told(self, status: int) -> bool:
        """Whether a process ended with this status because it was told to."""
        return self.is_ending and status in (-signal.SIGINT, -signal.SIGTERM, 130)

    def end(self) -> None:
        """Kill what still runs."""
        self._send(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def _send(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)


def _blame(ended: tuple[int, int]) -> int:
    """Sort key of (rank, status): likelier causes first.

    A signal comes first, then a failure, then a user's mistake, then an interruption; last, a process that
    only reports the loss of another.
    """
    status = ended[1]
    return -1 if status < 0 else {GroupError.status: 3, 130: 2, WidenetError.status: 1}.get(status, 0)


class Line:
    """Runs work in one daemon thread, in the order in which it was submitted: the collectives of a process.

    A collective whose partner has stopped blocks its thread for as long as torch allows; `fail` releases the
    callers that wait for its result. A daemon thread, unlike one of an executor, does not keep the process
    from ending.

    Attributes:
        doing: What this process does, for messages.
        heartbeat: Watches the other processes; None in a group that a script has joined itself.
        lost: Gets the error of `fail`.
        has_failed: Whether a caller has got that error.
    """

    def __init__(self) -> None:
        self.doing = "start"
        self.heartbeat: Heartbeat | None = None
        self.lost: Future[None] = Future()
        self.has_failed = False
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="exchange", daemon=True).start()

    def submit(self, work: Callable[..., T], *arguments: object) -> Callable[[], T]:
        """Queue `work(*arguments)`; the function that is returned waits for the result.

        It raises the error of `fail` if the line fails before.
        """
        pending: Future[T] = Future()
        self._queue.put((pending, partial(work, *arguments)))
        return partial(self._result, pending)

    def fail(self, error: Exception) -> None:
        """Fail all work that is queued or running, and all work submitted later, with an error."""
        with suppress(InvalidStateError):  # it has failed before
            self.lost.set_exception(error)

    def _result(self, pending: Future[T]) -> T:
        try:
            if not pending.done():
                wait((pending, self.lost), return_when=FIRST_COMPLETED)  # type: ignore[misc]
            if not pending.done():
                self.has_failed = True
                self.lost.result()
            return pending.result()
        finally:
            del pending  # the error's traceback would keep it

    def _serve(self) -> None:
        from widenet.devices import keep_to_one_thread  # the command line reads the defaults without torch

        keep_to_one_thread()
        while True:
            _do(*self._queue.get())


def _do(pending: Future[T], work: Callable[[], T]) -> None:
    """Do some work and keep nothing of it: a thread that frees a tensor while Python ends aborts."""
    try:
        pending.set_result(work())
    except BaseException as error:
        pending.set_exception(error)
    del pending, work  # an error's traceback would keep them


@cache
def line() -> Line:
    """The line of this process: one for all its exchanges, whose collectives have one order."""
    return Line()


class Heartbeat:
    """Sends this process's heartbeat to the group and watches those of the others.

    One thread writes this process's heartbeat into the group's store and reads those of all. It may block for
    as long as the network is cut, so another thread decides who is lost. Neither takes part in a collective.
    Both run while the main thread is busy in torch, in compiled code or in writing a file. So a slow process
    keeps beating, and a stopped or dead one does not.

    Attributes:
        beats: The latest heartbeat of each process: its number, the host, and whether the process has left
            the group properly; None before the first. This process's own shows that the store answers.
        silent: For how many seconds each heartbeat has not changed.
        lost: The error that names the lost process.
    """

    def __init__(
        self,
        store: "Store",
        rank: int,
        size: int,
        meeting: str,
        timeout: float,
        hosted: bool,
        is_busy: Callable[[], bool],
    ) -> None:
        """Prepare the threads; `start` starts them.

        Args:
            store: The group's store, on a connection of its own.
            rank: Rank of this process.
            size: Number of processes.
            meeting: Address of the store, for messages.
            timeout: Seconds without a heartbeat after which a process is reported as lost.
            hosted: Whether process 0 holds the store; then the store is lost with that process.
            is_busy: Whether a device is working for this process.
        """
        self.store, self.rank, self.size, self.meeting, self.hosted = store, rank, size, meeting, hosted
        self.timeout, self.is_busy = timeout, is_busy
        self._limit, self._pause = timeout * _LOST_SHARE, min(timeout / _BEATS, _LONGEST_PAUSE_SECONDS)
        self.lost: GroupError | None = None
        self.beats: list[tuple[int, str, bool] | None] = [None] * size
        self.silent = [0.0] * size
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, name="heartbeat", daemon=True) for work in (self._beat, self._watch)
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leave the group properly: the others no longer expect a heartbeat."""
        self._ended.set()
        self._threads[0].join(self._pause)

    def verdict(self) -> GroupError | None:
        """Return the error that names the lost process, or None if none is lost.

        A process that fails closes its connections, which may be noticed before its silence. So if a process
        has been silent for some time, this waits until it is certain which one was lost.
        """
        deadline = time.monotonic() + self.timeout
        while self.lost is None and time.monotonic() < deadline:
            if not any(self.beats[rank] and self.silent[rank] > self._limit / 2 for rank in range(self.size)):
                break
            time.sleep(self._pause / 4)
        return self.lost

    def _beat(self) -> None:
        """Write this process's heartbeat and read all, again and again."""
        keys, host = [f"widenet/beat/{rank}" for rank in range(self.size)], socket.gethostname()
        number, ended = 0, False
        try:
            while not ended:
                ended, number = self._ended.wait(self._pause if number else 0), number + 1
                self.store.set(keys[self.rank], json.dumps((number, host, ended)))
                known = [
                    rank for rank, beat in enumerate(self.beats) if beat or self.store.check([keys[rank]])
                ]
                for rank, text in zip(
                    known, self.store.multi_get([keys[rank] for rank in known]), strict=True
                ):
                    self.beats[rank] = tuple(json.loads(text))
        except RuntimeError as error:
            # The store ends with the process that holds it. If the launcher held it, the launcher has also
            # ended its processes, which may still be saving.
            zero = self.beats[0]
            if self.hosted and self.rank != 0 and not (self._ended.is_set() or (zero and zero[2])):
                self._declare([0], f"its connection ended: {str(error).splitlines()[0]}")
            self._ended.set()

    def _watch(self) -> None:
        """Count for how long each process has been silent.

        A pause between two looks counts as two usual pauses at most. So a process that was stopped, or got no
        CPU time, does not report the others as lost when it continues.
        """
        before, then = [*self.beats], time.monotonic()
        while self.lost is None and not self._ended.wait(self._pause):
            passed, then = min(time.monotonic() - then, 2 * self._pause), time.monotonic()
            latest = [*self.beats]
            self.silent = [
                0.0 if beat != old or (beat and beat[2]) else silent + passed
                for beat, old, silent in zip(latest, before, self.silent, strict=True)
            ]
            before = latest
            self.check()
        # On CUDA a collective runs on the device. No error can release the thread that waits for its result.
        deadline = time.monotonic() + STUCK_SECONDS
        while self.lost is not None and self.is_busy():
            if time.monotonic() > deadline:
                sys.stderr.write(f"widenet: {self.lost}\n")
                sys.stderr.flush()
                os._exit(GroupError.status)
            time.sleep(self._pause)

    def check(self) -> None:
        """Declare lost every process that has been silent for too long, or that has not joined in time.

        The silence of another process counts up to the store's latest answer only. If the store itself is
        silent, nothing is known of the others.
        """
        own, ranks = self.silent[self.rank], range(self.size)
        lost = [rank for rank in ranks if self.beats[rank] and self.silent[rank] - own > self._limit]
        missing = [rank for rank in ranks if not self.beats[rank] and self.silent[rank] > JOIN_SECONDS]
        if self.beats[self.rank] is not None and own > self._limit:
            if self.hosted and self.rank != 0:
                self._declare([0], f"no sign of life for {own:.0f} seconds")
            else:
                # This process cannot reach the store, and so cannot know who is lost.
                cause = f"{self.meeting}, where its group meets, has not answered for {own:.0f} seconds"
                self._declare([self.rank], cause)
        elif lost:
            self._declare(lost, f"no sign of life for {self.silent[lost[0]]:.0f} seconds")
        elif missing:
            self._declare(missing, f"it did not join within {JOIN_SECONDS:.0f} seconds")

    def _declare(self, ranks: Sequence[int], cause: str) -> None:
        """Report a loss, with the step and layer at which this process waits; fail the work of its line."""
        beats = [(rank, self.beats[rank]) for rank in ranks]
        names = [
            f"process {rank} of {self.size}{f' (host {beat[1]})' if beat else ''}" for rank, beat in beats
        ]
        verb = "were" if len(names) > 1 else "was"
        self.lost = GroupError(f"{' and '.join(names)} {verb} lost at {line().doing}: {cause}")
        line().fail(self.lost)
