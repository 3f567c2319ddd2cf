"""What this machine has: processors and memory that this process may use."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from widenet.errors import OptionError

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_CONTROLLERS = (
    ("", "memory.max", "memory.current", ""),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Of version 2 and 1 of Linux's control groups: folder, files of limit and use, and what begins the names
of the whole in memory.stat.
"""


def available_threads(num_processes: int | None = None) -> int:
    """Processors that this process may use, its share of them among several processes of this machine.

    num_processes: how many share them; None: as many as the launcher started. mpirun may have bound this
    process to processors of its own; then the launcher's are shared. WIDENET_THREADS overrides; raises
    OptionError where that is no number of threads.
    """
    asked = os.environ.get("WIDENET_THREADS")
    if not asked:
        own = len(os.sched_getaffinity(0))
        if num_processes is not None:
            return max(1, own // num_processes)
        sharing = announced_number("LOCAL_WORLD_SIZE", 1)
        return own if sharing == 1 else max(1, min(own, len(os.sched_getaffinity(os.getppid())) // sharing))
    if not re.fullmatch("0*[1-9][0-9]*", asked):
        raise OptionError(
            f'the environment variable WIDENET_THREADS must be a whole number of at least 1; got "{asked}".'
        )
    return int(asked)


def announced_number(name: str, default: int) -> int:
    """A whole number that a launcher has put into the environment; raises OptionError where it is none."""
    text = os.environ.get(name) or f"{default}"
    if not text.isdecimal():
        raise OptionError(
            f'the environment variable {name} must be a whole number; got "{text}". Unset it, or start by'
            " torchrun."
        )
    return int(text)


def available_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """Bytes of memory that processes here can still take without swapping, also by the container's limit;
    None where nobody says.
    """
    found = [
        _of_machine(proc / "meminfo"),
        *(_of_group(folder, *names) for folder, *names in _groups(proc / "self" / "cgroup", cgroup)),
    ]
    return min((limit for limit in found if limit is not None), default=None)


def used_memory(proc: Path = _PROC) -> int | None:
    """Bytes of memory that this process has in use; None where nobody says."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", _text(proc / "self" / "status"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _of_machine(meminfo: Path) -> int | None:
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(meminfo), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _groups(memberships: Path, cgroup: Path) -> Iterator[tuple[Path, str, str, str]]:
    """The control groups that this process is in, each within the next; as a container sees it, its own
    may be the outermost.
    """
    paths = {
        line.split(":")[1]: Path(line.split(":", 2)[2])
        for line in _text(memberships).splitlines()
        if line.count(":") >= 2
    }
    for controller, limit, used, whole in _CONTROLLERS:
        path = next((path for known, path in paths.items() if controller in known.split(",")), Path("/"))
        for inner in (path, *path.parents):
            yield cgroup / controller / str(inner).strip("/"), limit, used, whole


def _of_group(folder: Path, limit: str, used: str, whole: str) -> int | None:
    """What a control group leaves; pages of files and what the kernel keeps for speed can be taken back."""
    most, current = _text(folder / limit).strip(), _text(folder / used).strip()
    if not most.isdecimal() or not current.isdecimal():
        return None
    kept = re.findall(
        rf"^{whole}(?:inactive_file|active_file|slab_reclaimable) (\d+)$",
        _text(folder / "memory.stat"),
        re.MULTILINE,
    )
    return max(int(most) - int(current) + sum(map(int, kept)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
