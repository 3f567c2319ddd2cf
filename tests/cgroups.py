"""Caps of memory that the kernel holds: control groups, version 1 or 2."""

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path("/sys/fs/cgroup")
_JOINED = 'echo $$ > "$0" && exec "$@"'


@contextmanager
def capped(num_bytes):
    """Gives the folder of a group whose processes have so much memory together, and no swap; skips the test
    where none can be made.
    """
    lines = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    if "memory" in lines:
        above, limits = _ROOT / f"memory{lines['memory']}", {"memory.limit_in_bytes": num_bytes}
    else:
        above, limits = _ROOT / lines.get("", "/").strip("/"), {"memory.max": num_bytes, "memory.swap.max": 0}
    group = above / "widenet-test"
    try:
        group.mkdir(exist_ok=True)
        for name, limit in limits.items():
            (group / name).write_text(f"{limit}")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def run_in(group, command, **more):
    """Runs a command in a group: what `subprocess.run` gives."""
    return subprocess.run(
        ["sh", "-c", _JOINED, group / "cgroup.procs", *command],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def peak(group):
    """The most bytes that the processes of a group had at once, caches included."""
    names = "memory.max_usage_in_bytes", "memory.peak"
    return int(next(group / name for name in names if (group / name).exists()).read_text())
