"""Training steps in native and in portable bits, in turns; and the processor that made them."""

import argparse

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish
from benchmarks.speed import CASES, Case
from benchmarks.synthetic import write_histories
from widenet.kernels.native import instruction_sets

BITS = ("native", "portable")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["b256", "b1024"])
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a turn, at least one step")


def run(asked: argparse.Namespace) -> None:
    """Print a table for each case."""
    tables = []
    for name in asked.cases:
        case = CASES[name]
        with workplace() as folder:
            write_histories(folder, case.width, case.examples)
            found = measure([_program(case, str(folder), bits) for bits in BITS], asked.rounds, asked.seconds)
        tables.append(_table(case, found))
        print(tables[-1], flush=True)
    publish("portable", tables, asked.out)


def _program(case: Case, folder: str, bits: str) -> Program:
    job = {
        "folder": folder,
        "hidden": case.hidden,
        "softmax": case.softmax,
        "batch": case.batch,
        "optimizer": case.optimizer,
    }
    return Program(bits, "benchmarks.steps.widenet_steps:train", {**job, "threads": THREADS, "bits": bits})


def _table(case: Case, found: list[Measured]) -> Table:
    table = Table(case.title, ["bits", "time / native", "ms a step"])
    for measured in found:
        table.add(measured, found[0])
    facts = ", ".join(f"{name} {value}" for name, value in instruction_sets().items() if name != "bits")
    table.notes.append(f"{THREADS} threads; {facts}.")
    return table
