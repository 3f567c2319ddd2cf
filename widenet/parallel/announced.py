"""What the launcher of a process has said in its environment: torchrun, Slurm or `--processes`."""

import os
import re

_SLURM = {
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_STEP_NUM_TASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
    "MASTER_ADDR": "SLURM_LAUNCH_NODE_IPADDR",
}


def announced(name: str) -> str | None:
    """What the launcher says in an environment variable of torchrun, or in Slurm's place of it.

    Slurm's SLURM_NTASKS would not do for WORLD_SIZE: a batch script that starts one process without srun has it too.
    """
    host = _first_host(os.environ.get("SLURM_STEP_NODELIST", "")) if name == "MASTER_ADDR" else ""
    return os.environ.get(name) or host or os.environ.get(_SLURM.get(name, ""), None)


def _first_host(nodes: str) -> str:
    """The first of Slurm's list of nodes, where the first process runs: "a01" of "a[01-04,7],b3"; empty of an empty one."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first[0]) if first else ""


def restarted() -> bool:
    """Whether torchrun has started this process in place of one that ended badly.

    Where a group is on several machines, torchrun counts a restart on that machine alone which lost a process: every process must be asked.
    """
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0


def launch_id() -> str:
    """The name that torchrun gives to all attempts of one launch; empty without torchrun."""
    return os.environ.get("TORCHELASTIC_RUN_ID") or ""
