"""Reads what the launcher (torchrun, mpirun, Slurm or `widenet train`) has put into the environment."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

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

_PMIX = {"RANK": "PMIX_RANK", "LOCAL_RANK": "PMIX_RANK"}
"""Variables of PRRTE's `prterun`, which does not set the number of processes."""


def launcher_variable(name: str) -> str | None:
    """Return the value of an environment variable of torchrun, or of the launcher's own variable for it.

    For WORLD_SIZE, Slurm's SLURM_NTASKS cannot be used: it is also set in a batch script that starts one
    process without srun.
    """
    names = _names()
    host = ""
    if name == "MASTER_ADDR" and names is _SLURM:
        host = _first_host(os.environ.get("SLURM_STEP_NODELIST", ""))
    return os.environ.get(name) or host or os.environ.get(names.get(name, ""), None)


def _names() -> Mapping[str, str]:
    """The launcher's own name of each variable of torchrun.

    mpirun comes before Slurm: within a Slurm job it starts its daemons by srun, and Slurm's variables
    describe those.
    """
    for names in _MPI:
        if all(variable in os.environ for variable in names.values()):
            return names
    return _PMIX if started_by_pmix_alone() else _SLURM


def leave_launcher() -> None:
    """Forget the launcher of this process: from now on it is one process alone.

    For processes that another program has started, which may have inherited a launcher's variables.
    """
    own = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    others = [name for names in (*_MPI, _SLURM, _PMIX) for name in names.values()]
    for name in (*own, *others):
        os.environ.pop(name, None)


def started_by_mpi() -> bool:
    """Whether mpirun has started this process directly, without another launcher in between."""
    return _names() in _MPI and not {"WIDENET_LAUNCHER", "TORCHELASTIC_RUN_ID"} & set(os.environ)


def started_by_pmix_alone() -> bool:
    """Whether a PMIx launcher other than Open MPI's mpirun and `srun --mpi=pmix` has started this process."""
    through_slurm = os.environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    return "PMIX_RANK" in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ and not through_slurm


def launcher_identity() -> str:
    """Process id and start time of the launcher of this group's processes on this machine.

    The launcher is the nearest ancestor without a rank in its environment. A script that wraps each process
    has one.
    """
    rank, pid = f"{_names()['RANK']}=".encode(), os.getppid()
    while pid > 1 and any(line.startswith(rank) for line in _environment(pid)):
        pid = int(process_status(pid)[1])
    return f"{pid}-{process_status(pid)[19]}"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:  # another user's process, such as a daemon of a cluster
        return []


def process_status(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: 0 is the state, 1 the parent, 19 the start time; see proc(5).

    Raises:
        OSError: There is no such process, or the system does not show it.
    """
    # The name stands in parentheses and may hold any bytes.
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _first_host(nodes: str) -> str:
    """The first host of a Slurm node list: "a01" for "a[01-04,7],b3"; empty for an empty list."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first[0]) if first else ""


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
        return f"{boot} {pid} {process_status(pid)[19]}"
    except OSError:
        return ""
