"""Runs commands on thousands of changed files and command lines, and counts successes and failures.

Failures are refusals, crashes, hangs, and files left half-written.
"""

import argparse
import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.places import workplace
from tests.fuzz import cases, world
from tests.fuzz.forks import Ended, Forks


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", type=int, default=20_000, help="how many cases, from the first on")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--case", type=int, help="run one case, and show what it prints and how its folder looks"
    )
    parser.add_argument("--processes", type=int, default=2, help="cases at a time")


def run(asked: argparse.Namespace) -> None:
    """Print a table of outcomes by kind of case, and every case that breaks a rule."""
    with workplace() as folder:
        if asked.case is not None:
            _show(asked.case, folder)
        elif _tabulate(range(asked.first, asked.first + asked.cases), asked.processes, folder):
            sys.exit(1)


def _show(number: int, folder: Path) -> None:
    forks = Forks()
    (folder / "world").mkdir()
    world.make(folder / "world", forks)
    case, ended, rules = cases.outcome(number, folder / "world", folder / "case", forks)
    forks.close()
    print(
        f"widenet {' '.join(case.words)}\nchanged:"
        f" {', '.join(case.files) or 'nothing'}\n{ended.out}{ended.err}"
    )
    print(
        f"status {ended.status}, {ended.processor_seconds:.1f} s; rules broken: {'; '.join(rules) or 'none'}"
    )
    kept = Path(f"fuzz-case-{number}")
    shutil.copytree(folder / "case", kept, symlinks=True, ignore=shutil.ignore_patterns("fifo", "sparse"))
    print(f"its folder is kept as {kept}")


def _tabulate(numbers: range, processes: int, folder: Path) -> int:
    """Run the cases; the number of those that break a rule."""
    succeeded, refused, wrong, longest = Counter[str](), Counter[str](), Counter[str](), Counter[str]()

    def part(place: int) -> None:
        home = folder / str(place)
        (home / "world").mkdir(parents=True)
        forks = Forks()
        world.make(home / "world", forks)
        for number in numbers[place::processes]:
            case, ended, rules = cases.outcome(number, home / "world", home / "case", forks)
            _count(number, case, ended, rules)
            shutil.rmtree(home / "case")
            if (succeeded.total() + refused.total()) % 1_000 == 0:
                print(
                    f"{succeeded.total() + refused.total():,} of {len(numbers):,} cases",
                    file=sys.stderr,
                    flush=True,
                )
        forks.close()

    def _count(number: int, case: cases.Case, ended: Ended, rules: list[str]) -> None:
        if rules:
            wrong[case.kind] += 1
            said = ended.err.strip().splitlines()[-1:] or [""]
            print(
                f"case {number}: widenet {' '.join(case.words)[:200]}: {'; '.join(rules)}: {said[0][:200]}",
                flush=True,
            )
        (succeeded if ended.status == 0 else refused)[case.kind] += 1
        longest[case.kind] = max(longest[case.kind], round(ended.processor_seconds * 10))

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(part, range(processes)))
    print(
        "\n| changed | cases | succeeded | refused | broke a rule | longest, seconds of the processor"
        " |\n|---|---|---|---|---|---|"
    )
    for kind in sorted({*succeeded, *refused}):
        count = succeeded[kind] + refused[kind]
        print(
            f"| {kind} | {count:,} | {succeeded[kind]:,} | {refused[kind]:,} | {wrong[kind]} |"
            f" {longest[kind] / 10:.1f} |"
        )
    return wrong.total()
