"""What this machine has: processors and memory that this process may use."""

import os
import re
from pathlib import Path

from widenet.errors import OptionError

_PROC, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available_threads(num_processes: int | None = None) -> int:
    """Processors that this process may use, its share of them among several processes of this machine.

    num_processes: how many share them; None: as many as torchrun or `--processes` started.
    WIDENET_THREADS overrides; raises OptionError where that is no number of threads.
    """
    asked = os.environ.get("WIDENET_THREADS")
    if not asked:
        sharing = num_processes or int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        return max(1, len(os.sched_getaffinity(0)) // sharing)
    if not re.fullmatch("0*[1-9][0-9]*", asked):
        raise OptionError(f'the environment variable WIDENET_THREADS must be a whole number of at least 1; got "{asked}".')
    return int(asked)


def available_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """Bytes of memory that processes here can still take without swapping, also by the container's limit; None where nobody says."""
    found = [limit for limit in (_of_machine(proc), _of_container(cgroup)) if limit is not None]
    return min(found, default=None)


def _of_machine(proc: Path) -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", proc.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _of_container(cgroup: Path) -> int | None:
    """What a cgroup (version 2) leaves; pages of files that nobody used lately can be taken back."""
    try:
        limit, used = (cgroup / "memory.max").read_text().strip(), int((cgroup / "memory.current").read_text())
        idle = re.search(r"^inactive_file (\d+)$", (cgroup / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(int(limit) - used + (int(idle[1]) if idle else 0), 0)
