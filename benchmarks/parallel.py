"""One training by 1 and 2 processes and threads; and what it costs that all of them give the same bits."""

import argparse

from benchmarks.alternately import Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish, spread
from benchmarks.speed import CASES
from benchmarks.synthetic import write_histories

LAYOUTS = {
    "1 process, 2 threads": (1, 2),
    "1 process, 1 thread": (1, 1),
    "2 processes, 1 thread each": (2, 1),
}
PLAIN = {"1 process, 2 threads": (1, 2), "2 processes, 1 thread each": (2, 1)}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["a", "b256", "c"])
    parser.add_argument("--rounds", type=int, default=9, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn, at least one step")


def run(asked: argparse.Namespace) -> None:
    """Print two tables for each case: scaling, and the cost of equal bits."""
    tables = []
    for name in asked.cases:
        case = CASES[name]
        with workplace() as folder:
            write_histories(folder, case.width, case.examples)
            job = {
                "folder": str(folder),
                "hidden": case.hidden,
                "softmax": case.softmax,
                "batch": case.batch,
                "optimizer": case.optimizer,
            }
            exact, plain = (
                _programs(layouts, job, is_plain) for layouts, is_plain in ((LAYOUTS, False), (PLAIN, True))
            )
            found = measure([*exact, *plain], asked.rounds, asked.seconds)
        tables += [
            _scaling(case.title, found[: len(exact)]),
            _cost(case.title, found[: len(exact)], found[len(exact) :]),
        ]
        print(*tables[-2:], sep="\n", flush=True)
    publish("parallel", tables, asked.out)


def _programs(layouts: dict[str, tuple[int, int]], job: dict[str, object], plain: bool) -> list[Program]:
    place = "benchmarks.steps.group_steps:train"
    return [
        Program(name, place, {**job, "processes": processes, "threads": threads, "plain": plain})
        for name, (processes, threads) in layouts.items()
    ]


def _scaling(title: str, found: list[Measured]) -> Table:
    """Return the speed-up over one thread, and its share of the processors."""
    table = Table(
        f"Scaling. {title}",
        [
            "layout",
            "time / that of 1 process, 2 threads",
            "ms a step",
            "speed-up over 1 thread",
            "efficiency",
        ],
    )
    alone = found[1]
    for measured in found:
        processors = measured.program.arguments["processes"] * measured.program.arguments["threads"]
        gains = (
            [1 / ratio for ratio in measured.ratios(alone)]
            if measured.problem is None and alone.problem is None
            else [0.0]
        )
        table.add(
            measured,
            found[0],
            spread(gains, "{:.2f}"),
            spread([gain / processors for gain in gains], "{:.0%}"),
        )
    return table


def _cost(title: str, exact: list[Measured], plain: list[Measured]) -> Table:
    """Return the time relative to plain sums and uncut operands, with the same processes and threads."""
    table = Table(f"Cost of equal bits. {title}", ["layout", "time / plain", "ms a step", "ms a step, plain"])
    known = {measured.program.name: measured for measured in exact}
    for base in plain:
        seconds = [1000 * second for second in base.seconds] or [0.0]
        table.add(known[base.program.name], base, spread(seconds, "{:,.4g}"))
    table.notes.append(
        "Plain: one shard a process, torch's threads within each operation, sums of floats by an all-reduce"
        " of floats."
    )
    return table
