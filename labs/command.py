"""The command line of a lab: run it, print its tables, and say how long it took."""

import argparse
import time
from collections.abc import Callable

from benchmarks.results import Table

Run = Callable[[bool], list[Table]]
"""A lab: whether to run its small form, and its tables."""


class AbsentDataError(Exception):
    """Data that a lab needs are not on this machine."""


def start(run: Run) -> None:
    """Run one lab as the command line says."""
    show(run, asked())


def asked() -> bool:
    """Read the command line: whether the small form is wanted."""
    parser = argparse.ArgumentParser(description="Run a lab and print its table.", allow_abbrev=False)
    parser.add_argument("--small", action="store_true", help="A small form, of seconds.")
    return bool(parser.parse_args().small)


def show(run: Run, small: bool) -> None:
    """Run a lab and print its tables, or the reason why it is skipped."""
    begun = time.perf_counter()
    try:
        tables = run(small)
    except AbsentDataError as absent:
        print(f"Skipped: {absent}\n", flush=True)
        return
    for table in tables:
        print(table)
    form = "Small form" if small else "Full form"
    print(f"{form}, {time.perf_counter() - begun:.0f} seconds.\n", flush=True)
