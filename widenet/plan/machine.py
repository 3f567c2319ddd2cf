"""The processors and the memory of this machine that this process may use."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from widenet.errors import OptionError

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_FILES = {
    "": ("memory.max", "memory.current", ""),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}
"""Of Linux's control groups, version 2 and 1, by controller: files of limit and usage, and the prefix of
totals in memory.stat.
"""


def seems_to_have_cuda() -> bool:
    """Return whether the machine seems to have a CUDA device; torch, which knows, need not be loaded."""
    return Path("/dev/nvidiactl").exists()


def available_threads(num_processes: int | None = None) -> int:
    """Return the number of processors for this process: its share among the processes of this machine.

    WIDENET_THREADS overrides it. If mpirun has bound this process to some processors, those of the launcher
    are shared.

    Args:
        num_processes: Number of processes that share them; None: as many as the launcher has started.

    Raises:
        OptionError: WIDENET_THREADS is not a number of threads.
    """
    if os.environ.get("WIDENET_THREADS"):
        return announced_number("WIDENET_THREADS")
    own = len(os.sched_getaffinity(0))
    if num_processes is not None:
        return max(1, own // num_processes)
    sharing = announced_number("LOCAL_WORLD_SIZE")
    return own if sharing == 1 else max(1, min(own, len(os.sched_getaffinity(os.getppid())) // sharing))


def announced_number(name: str) -> int:
    """Return a number from the environment, 1 without one; raises OptionError if it is none."""
    text = os.environ.get(name) or "1"
    rule = f"the environment variable {name} must be a whole number of at least 1"
    OptionError.require(re.fullmatch("0*[1-9][0-9]*", text), rule, value=text)
    return int(text)


def available_memory(proc: Path = _PROC, cgroup: Path = _CGROUP) -> int | None:
    """Return the bytes of memory that processes can still take, without swapping and within the container.

    None if the system does not say.
    """
    limits = [
        _stated(proc / "meminfo", "MemAvailable"),
        *(_of_group(folder, *names) for folder, *names in _groups(proc / "self" / "cgroup", cgroup)),
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def used_memory(proc: Path = _PROC) -> int | None:
    """Return the bytes of memory that this process uses; None if the system does not say."""
    return _stated(proc / "self" / "status", "VmRSS")


def _stated(path: Path, name: str) -> int | None:
    match = re.search(rf"^{name}:\s+(\d+) kB$", _text(path), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _groups(memberships: Path, cgroup: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yield the control groups of this process and those around them."""
    for line in ("0::/", "0:memory:/", *_text(memberships).splitlines()):
        _, controllers, path = line.split(":", 2)
        for name in _FILES.keys() & set(controllers.split(",")):
            for inner in (path, *Path(path).parents):
                yield cgroup / name / str(inner).strip("/"), *_FILES[name]


def _of_group(folder: Path, limit: str, used: str, whole: str) -> int | None:
    """Return the free memory of a control group, including caches that the kernel can take back."""
    most, current = _text(folder / limit).strip(), _text(folder / used).strip()
    if not most.isdecimal() or not current.isdecimal():
        return None
    caches = re.findall(
        rf"^{whole}(?:inactive_file|active_file|slab_reclaimable) (\d+)$",
        _text(folder / "memory.stat"),
        re.MULTILINE,
    )
    return max(int(most) - int(current) + sum(map(int, caches)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
