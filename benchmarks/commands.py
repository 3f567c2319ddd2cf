"""Runs `widenet` commands in processes, and measures each: seconds, memory, bytes."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_MEASURED = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr)
seconds = time.perf_counter() - started
with open("/proc/self/io") as file:
    counters = dict(line.split(": ") for line in file)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
figures = {
    "seconds": seconds,
    "cpu_seconds": used.ru_utime + used.ru_stime,
    "peak_bytes": used.ru_maxrss * 1024,
    "written_bytes": int(counters["write_bytes"]),
}
print(json.dumps(figures))
"""
"""A small process that starts the command, since a process inherits the peak of the one that forked it."""


@dataclass(frozen=True)
class Ran:
    """Figures of a command that has ended.

    Attributes:
        seconds: From its start to its end.
        cpu_seconds: Of all processors, by all processes of its tree.
        peak_bytes: Peak resident memory of the largest process of its tree.
        written_bytes: What the processes of its tree wrote to disk, scratch files included.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    written_bytes: int


def measured(line: list[str], folder: Path) -> Ran:
    """Run a command in a folder, and return its figures; it must succeed."""
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, *line], cwd=folder, check=False, capture_output=True, text=True
    )
    if ended.returncode:
        raise SystemExit(f"{' '.join(line)} failed:\n{ended.stderr}")
    return Ran(**json.loads(ended.stdout))


def widenet(*words: str | Path) -> list[str]:
    """Return the command line of a `widenet` command."""
    return [sys.executable, "-m", "widenet", *map(str, words)]


COLUMNS = ["command", "seconds", "CPU s", "peak GB", "GB written", "GB left"]


def row(name: str, ran: Ran, out: Path) -> list[str]:
    """Return the cells under COLUMNS: figures of a command, and the size of the file or folder it made."""
    left = sum(file.stat().st_size for file in [out, *out.rglob("*")] if file.is_file())
    sizes = (ran.peak_bytes, ran.written_bytes, left)
    times = (ran.seconds, ran.cpu_seconds)
    return [name, *(f"{time:,.1f}" for time in times), *(f"{size / 1e9:.2f}" for size in sizes)]
