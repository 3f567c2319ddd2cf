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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from widenet.errors import GroupError, OptionError, WidenetError

LAUNCHER = "WIDENET_LAUNCHER"
"""Environment variable with the process id of our own launcher, in the processes that it has started."""

SAVE_SECONDS = 300.0
"""Time to save and end after Ctrl-C or SIGTERM; then `launch` kills what has not ended."""
STOP_SECONDS = 10.0
"""Time to end after a second Ctrl-C or SIGTERM."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0
"""Time to end for the others after one has failed."""
_LOST_SECONDS = 5.0
"""The same after one has reported the loss of another, which all of them have looked for."""

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
    if num_processes < 1:
        raise OptionError("must be at least 1", option="processes", value=num_processes)
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
        has_failed = False
        while None in (statuses := [process.poll() for process in self.processes]):
            failed = [status for status in statuses if status and not self._is_told(status)]
            if failed and not has_failed:
                # Of a process that was killed, the others may know nothing.
                seconds = _GRACE_SECONDS if self.is_ending or min(failed) > 0 else 0.0
                if {*failed} == {GroupError.status} and not self.is_ending:
                    seconds = _LOST_SECONDS
                self.deadline, has_failed = min(self.deadline, time.monotonic() + seconds), True
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
