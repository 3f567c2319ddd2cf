"""What the launcher of a process has said in its environment: torchrun, mpirun, Slurm or `widenet train`."""

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
"""Open MPI's variables, and those of Hydra, which starts the processes of MPICH and Intel MPI. `srun
--mpi=pmi2` sets only two of these.
"""

_SLURM = {
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
    "MASTER_ADDR": "SLURM_LAUNCH_NODE_IPADDR",
}

_PMIX = {"RANK": "PMIX_RANK", "LOCAL_RANK": "PMIX_RANK"}
"""PRRTE's `prterun` alone says neither how many processes there are nor how many run on a machine."""


def announced(name: str) -> str | None:
    """What the launcher says in an environment variable of torchrun, or in its own variable for the same.

    Slurm's SLURM_NTASKS would not do for WORLD_SIZE: a batch script that starts one process without srun has
    it too.
    """
    names = _names()
    host = (
        _first_host(os.environ.get("SLURM_STEP_NODELIST", ""))
        if name == "MASTER_ADDR" and names is _SLURM
        else ""
    )
    return os.environ.get(name) or host or os.environ.get(names.get(name, ""), None)


def _names() -> Mapping[str, str]:
    """The variables of the launcher. mpirun within a Slurm job starts its own daemons by srun, so Slurm's
    variables describe those.
    """
    for names in _MPI:
        if all(variable in os.environ for variable in names.values()):
            return names
    return _PMIX if by_pmix_alone() else _SLURM


def by_mpi() -> bool:
    """Whether mpirun has started this process itself, with no other launcher in between."""
    return _names() in _MPI and not {"WIDENET_LAUNCHER", "TORCHELASTIC_RUN_ID"} & set(os.environ)


def by_pmix_alone() -> bool:
    """Whether a PMIx launcher has started this process that is neither Open MPI's mpirun nor `srun
    --mpi=pmix`.
    """
    through_slurm = os.environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    return "PMIX_RANK" in os.environ and "OMPI_COMM_WORLD_RANK" not in os.environ and not through_slurm


def launcher_here() -> str:
    """Names the process that has started all those of its group on this machine, by its id and the time at
    which it began.

    It is the nearest one above that has no rank. Scripts that stand between, one a process, have one.
    """
    rank, pid = f"{_names()['RANK']}=".encode(), os.getppid()
    while pid > 1 and any(line.startswith(rank) for line in _environment(pid)):
        pid = int(facts_of_process(pid)[1])
    return f"{pid}-{facts_of_process(pid)[19]}"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except PermissionError:  # another user's process, such as a daemon of a cluster
        return []


def facts_of_process(pid: int) -> list[str]:
    """What proc(5) says of a process after its name, which may be any bytes: state, parent, and at place 19
    when it began.

    Raises OSError where there is no such process, or Linux does not tell.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _first_host(nodes: str) -> str:
    """The first of Slurm's list of nodes, where the first process runs: "a01" of "a[01-04,7],b3"; empty of
    an empty one.
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first[0]) if first else ""


def restarted() -> bool:
    """Whether torchrun has started this process in place of one that ended badly.

    Where a group is on several machines, torchrun counts a restart on that machine alone which lost a
    process: every process must be asked.
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0


def launch_id() -> str:
    """The name that torchrun gives to all attempts of one launch; empty without torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID") or ""


def identity(pid: int) -> str:
    """A name for a running process that no other process ever has, on any machine; empty where Linux does
    not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {pid} {facts_of_process(pid)[19]}"
    except OSError:
        return ""
