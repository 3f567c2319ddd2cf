"""Trainings of which a process is stopped: how long until a message names it, and until all have ended."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.kills import write
from benchmarks.places import ROOT, workplace

CASES = [(2, 0, 10), (2, 1, 10), (4, 3, 10), (2, 1, 60)]
"""Processes, the rank that is stopped, and `--timeout`."""


def run() -> None:
    """Print, for every case, the seconds until the process was named and until the command had ended."""
    print("\n| processes | stopped | `--timeout` | seconds until it was named | until all had ended |")
    print("|---|---|---|---|---|")
    with workplace() as folder:
        write(folder, epochs=10**6)
        for case in CASES:
            named, ended = stopped(folder, *case)
            print(f"| {case[0]} | {case[1]} | {case[2]} | {named:.1f} | {ended:.1f} |", flush=True)


def stopped(folder: Path, processes: int, rank: int, timeout: int) -> tuple[float, float]:
    """Start a training, stop one of its processes after an epoch, and check that the message names it."""
    out = f"{processes} {rank} {timeout}"
    words = ["train", "network.json", "training.json", "--data", "data", "--out", out]
    words += ["--processes", str(processes), "--timeout", str(timeout)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = subprocess.Popen(
        [sys.executable, "-m", "widenet", *words],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stderr is not None
    while not command.stderr.readline().startswith("epoch  "):
        assert command.poll() is None, "the training ended before its first epoch"
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
    (victim,) = [
        int(child)
        for child in children
        if f"\0RANK={rank}\0".encode() in Path(f"/proc/{child}/environ").read_bytes()
    ]
    os.kill(victim, signal.SIGSTOP)
    since, named = time.monotonic(), None
    for line in command.stderr:
        if named is None and re.search(rf"process {rank} of {processes} \(host .*\) was lost at epoch", line):
            named = time.monotonic() - since
    command.wait()
    assert named is not None, f"no message named process {rank}"
    return named, time.monotonic() - since
