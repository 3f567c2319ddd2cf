"""Several local processes of one command: started together, watched, and ended together."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from widenet.errors import OptionError

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 20.0


def launch(num_processes: int, arguments: Sequence[str]) -> tuple[int, str | None]:
    """Run `python -m widenet ARGUMENTS` in several processes of one group; the exit status, and what went wrong in a sentence.

    Ctrl-C and SIGTERM go to every process, which then save and end. Where one process is lost the others are ended at once:
    they could only wait for it.
    """
    if num_processes < 1:
        raise OptionError(f"the number of processes must be at least 1; got {num_processes}.")
    processes = [
        subprocess.Popen([sys.executable, "-m", "widenet", *arguments], env=environment, start_new_session=True)  # noqa: S603 our own command
        for environment in _environments(num_processes)
    ]

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _watched(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _environments(num_processes: int) -> list[dict[str, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = os.environ.get("WIDENET_THREADS") or str(max(1, len(os.sched_getaffinity(0)) // num_processes))
    group = {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WIDENET_THREADS": threads}
    return [{**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num_processes)]


def _watched(processes: "list[subprocess.Popen[bytes]]") -> tuple[int, str | None]:
    """Wait until all have ended, or one has failed and the others have had their time to end too."""
    while any(process.poll() is None for process in processes):
        failed = [(rank, process.returncode) for rank, process in enumerate(processes) if process.returncode not in (None, 0)]
        if failed:
            return _ended(processes, *failed[0])
        time.sleep(_LOOK_SECONDS)
    failed = [(rank, process.returncode) for rank, process in enumerate(processes) if process.returncode != 0]
    return _ended(processes, *failed[0]) if failed else (0, None)


def _ended(processes: "list[subprocess.Popen[bytes]]", rank: int, status: int) -> tuple[int, str | None]:
    if status > 0:
        deadline = time.monotonic() + _GRACE_SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        if status in (2, 130):
            return status, None
    name = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    others = "the others were ended" if len(processes) > 1 else "nothing is left running"
    return 1, f"process {rank} of {len(processes)} was lost ({name}); {others}. Go on with --resume."
