"""Prepares one program, then runs as many steps as it reads from a pipe and reports their time."""

import json
import os
import resource
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

Steps = Callable[[int], dict[str, Any]]
"""Does a number of steps and gives facts about them, such as the loss."""


def main() -> None:
    """Run `python -m benchmarks.worker MODULE:FUNCTION ARGUMENTS LIBRARIES MEMORY`.

    Arguments and libraries are JSON; FUNCTION(**arguments) returns the `Steps`. MEMORY is a limit in bytes; 0
    is none. Each line of the input is a number of steps, each line of the output their result.
    """
    place, arguments, libraries, memory = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print must not get into the replies
    if int(memory):
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    Path("/proc/self/oom_score_adj").write_text(
        "1000"
    )  # should memory run out all the same, no one else's process goes first
    try:
        versions = {name: metadata.version(name) for name in json.loads(libraries)}
        module, _, function = place.partition(":")
        steps: Steps = getattr(import_module(module), function)(**json.loads(arguments))
        print(json.dumps({"versions": versions}), file=replies)
        for line in sys.stdin:
            started, worked = perf_counter(), process_time()
            facts = steps(int(line))
            seconds, cpu_seconds = perf_counter() - started, process_time() - worked
            print(
                json.dumps(
                    {
                        "seconds": seconds,
                        "cpu_seconds": cpu_seconds,
                        "peak_bytes": status_bytes("VmHWM"),
                        **facts,
                    }
                ),
                file=replies,
            )
    except Exception as error:
        print(json.dumps({"problem": _problem(error, int(memory))}), file=replies)
        raise


def status_bytes(name: str) -> int:
    """Present (VmRSS) or peak (VmHWM) memory of this process; unlike ru_maxrss, without its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _problem(error: Exception, memory: int) -> str:
    if isinstance(error, metadata.PackageNotFoundError):
        return f"{error.name} is not installed"
    if "CUDA out of memory" in str(error):
        return "out of memory"
    if isinstance(error, MemoryError) or "allocate memory" in str(error) or "bad_alloc" in str(error):
        return f"needs more than {memory / 1e9:.1f} GB"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


if __name__ == "__main__":
    main()
