"""Caps of memory that the kernel holds: control groups, version 1 or 2."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_JOIN = 'echo $$ > "$0" && exec "$@"'


@contextmanager
def capped(num_bytes: int) -> Iterator[Path]:
    """Give the folder of a group whose processes have so much memory together, and no swap.

    Raises:
        OSError: No group can be made.
    """
    lines = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in lines:
        above, limits = _ROOT / f"memory{lines['memory']}", {"memory.limit_in_bytes": num_bytes}
    else:
        above, limits = _ROOT / lines.get("", "/").strip("/"), {"memory.max": num_bytes, "memory.swap.max": 0}
    group = above / f"widenet-cap-{os.getpid()}"
    group.mkdir(exist_ok=True)
    try:
        for name, limit in limits.items():
            (group / name).write_text(f"{limit}")
        yield group
    finally:
        group.rmdir()


def within(group: Path, command: Sequence[str]) -> list[str]:
    """Return a command that runs another one within a group."""
    return ["sh", "-c", _JOIN, str(group / "cgroup.procs"), *command]


def peak(group: Path) -> int:
    """Return the most bytes that the processes of a group had at once, caches included."""
    names = "memory.max_usage_in_bytes", "memory.peak"
    return int(next(group / name for name in names if (group / name).exists()).read_text())
