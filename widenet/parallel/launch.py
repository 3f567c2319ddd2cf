"""Launchers of a group: what torchrun, mpirun or Slurm say in the environment, and a launcher of our own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO

from widenet.errors import GroupError, OptionError, WidenetError

LAUNCHER = "WIDENET_LAUNCHER"
"""Environment variable with the descriptor of a pipe, which closes when the launching process ends."""

SAVE_SECONDS = 300.0
"""Time to save and end after Ctrl-C or SIGTERM; then `launch` sends SIGTERM again, which ends at once."""
STOP_SECONDS = 10.0
"""Time to end after that, or after a second Ctrl-C; then `launch` sends SIGKILL."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0
"""Time to end for the others after one has failed."""

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
    try:
        while pid > 1 and b"\0" + rank in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
            pid = int(_status(pid)[1])
    except PermissionError:  # another user's process, such as a daemon of a cluster
        pass
    return f"{pid}-{_status(pid)[19]}"


def _status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: 1 is the parent, 19 the start time; see proc(5)."""
    # The name stands in parentheses and may hold any bytes.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def restarted() -> bool:
    """Whether torchrun has started this process after an earlier attempt failed.

    torchrun counts a restart only on the machine that lost a process. So all processes of a group must
    compare their answers.
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0


def launch_id() -> str:
    """The id that torchrun gives to all attempts of one launch; empty without torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID") or ""


def is_note_of_launch(note: str, launch: str) -> bool:
    """Return whether a run's note is of a launch by torchrun, whose agent has started this process.

    torchrun calls all launches "none" that are given no id. These differ by their agents, of which the
    note names those of the latest group, after the launch's id.
    """
    first, *others = note.splitlines() or [""]
    return first == launch and (launch != _NO_ID or identity(os.getppid()) in others)


def identity(pid: int) -> str:
    """A name for a running process, unique over time and machines; empty if the system does not show it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {pid} {_status(pid)[19]}"
    except OSError:
        return ""


def end_with_launcher() -> None:
    """Send SIGTERM to this process as soon as its launcher (`launch`, torchrun or mpirun) has ended.

    prctl(2) can do this too, but it sends the signal once for every thread of the parent, and a second
    SIGTERM ends a training without saving.
    """
    wait: Callable[[], object]
    if LAUNCHER in os.environ:
        wait = partial(os.read, int(os.environ[LAUNCHER]), 1)
    elif "TORCHELASTIC_RUN_ID" in os.environ or started_by_mpi():
        wait = partial(_wait_for_parent, os.getppid())
    else:
        return
    threading.Thread(target=_terminate_after, args=(wait,), name="launcher", daemon=True).start()


def _wait_for_parent(pid: int) -> None:
    while os.getppid() == pid:
        time.sleep(_POLL_SECONDS)


def _terminate_after(wait: Callable[[], object]) -> None:
    wait()
    os.kill(os.getpid(), signal.SIGTERM)


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
        raise OptionError("must be at least 1", option="processes", value=num_processes)
    with ExitStack() as stack:
        group = _Group(stack)
        handlers = {signal.SIGINT: group.forward, signal.SIGTERM: group.forward, signal.SIGTSTP: group.pause}
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        stack.callback(group.end)
        group.start(num_processes, arguments)
        return group.outcome(group.wait())


class _Group:
    """The processes, in order of their ranks."""

    def __init__(self, files: ExitStack) -> None:
        self.files = files
        self.processes: list[subprocess.Popen[bytes]] = []
        self.errors: list[IO[bytes] | None] = []
        """Standard error of each process; None for the first, which writes to this process's own."""
        self.signals: list[tuple[int, float]] = []
        """The signals that were sent to all processes, each with its time."""
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
            self.errors.append(self.files.enter_context(tempfile.TemporaryFile()) if rank else None)  # noqa: SIM115
            process = subprocess.Popen(  # noqa: S603 our own command
                [sys.executable, "-m", "widenet", *arguments],
                env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=self.errors[rank],
                pass_fds=self.pipe[:1],
                start_new_session=True,
            )
            self.processes.append(process)
        for number, _ in self.signals:  # that came meanwhile
            self._send(number)

    def forward(self, number: int, frame: FrameType | None = None) -> None:
        """Send a signal to every process."""
        self.signals.append((number, time.monotonic()))
        self._send(number)

    def pause(self, number: int, frame: FrameType | None) -> None:
        """Stop every process and this one; when this one continues, all continue."""
        self._send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self._send(signal.SIGCONT)

    def wait(self) -> list[int | None]:
        """Wait until all have ended, or those that have not have had time to; return their statuses."""
        failed_at = None
        while None in (statuses := [process.poll() for process in self.processes]):
            now = time.monotonic()
            failed = [status for status in statuses if status and not self._is_by_signal(status)]
            if failed and failed_at is None:
                failed_at = now
            grace = _GRACE_SECONDS if self.signals or min(failed, default=0) > 0 else 0.0
            if failed_at is not None and now - failed_at >= grace:
                break
            if len(self.signals) == 1 and now - self.signals[0][1] > SAVE_SECONDS:
                self.forward(signal.SIGTERM)
            if len(self.signals) > 1 and now - self.signals[-1][1] > STOP_SECONDS:
                break
            time.sleep(_POLL_SECONDS)
        return statuses

    def outcome(self, statuses: Sequence[int | None]) -> tuple[int, str | None]:
        """Return the group's exit status and problem; see `launch`."""
        running = [rank for rank, status in enumerate(statuses) if status is None]
        ended = [(rank, status) for rank, status in enumerate(statuses) if status]
        rank, status = min(ended, key=_blame, default=(0, 130 if running else 0))
        if self._is_by_signal(status):
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
        if self.signals or not problems:
            problems += [f"process {rank} of {len(statuses)} did not end and was killed." for rank in running]
        return status, " ".join(problems) or None

    def _is_by_signal(self, status: int) -> bool:
        """Whether a process ended with this status because of a signal that this one sent."""
        return bool(self.signals) and status in (-signal.SIGINT, -signal.SIGTERM, 130)

    def end(self) -> None:
        """Kill what still runs, and close the pipe."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for end in self.pipe:
            os.close(end)

    def _send(self, number: int) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


def _blame(ended: tuple[int, int]) -> int:
    """Sort key of (rank, status): likelier causes first.

    A signal comes first, then a failure, then a user's mistake, then an interruption; last, a process that
    only reports the loss of another.
    """
    status = ended[1]
    return -1 if status < 0 else {GroupError.status: 3, 130: 2, WidenetError.status: 1}.get(status, 0)
