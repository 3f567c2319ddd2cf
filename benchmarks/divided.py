"""AlexNet beside PyTorch, and a deep network on sparse data, each in one process and in several."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import presets, workplace
from benchmarks.results import Table, publish, spread
from benchmarks.synthetic import write_histories
from widenet import dataset_from_lists
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import memory, work
from widenet.plan.numbers import amount
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

PIXELS, CLASSES = 3 * 227 * 227, 1000
WIDTH, UNITS, BATCH, FEATURES = 50_000, 2048, 256, 144
LAYOUTS = {"1 process, 1 thread": 1, "2 processes, 1 thread each": 2, "4 processes, 1 thread each": 4}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="+", choices=_CASES, default=list(_CASES))
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn, at least one step")
    parser.add_argument("--batch", type=int, default=32, help="pictures of a step of AlexNet")


def run(asked: argparse.Namespace) -> None:
    """Print a table for each case."""
    tables = []
    for name in asked.cases:
        with workplace() as folder:
            tables.append(_CASES[name](folder, asked))
        print(tables[-1], flush=True)
    publish("divided", tables, asked.out)


def _alexnet(folder: Path, asked: argparse.Namespace) -> Table:
    """Return the seconds of a step beside PyTorch's."""
    draw, num = np.random.default_rng(0), 2 * asked.batch
    pixels, labels = draw.random((num, PIXELS), dtype=np.float32), draw.integers(CLASSES, size=num)
    np.save(folder / "pixels.npy", pixels)
    np.save(folder / "labels.npy", labels)
    rows = [[int(label)] for label in labels]
    dense = {"pixels": [row.tolist() for row in pixels]}
    dataset_from_lists(folder / "dataset", rows, width=CLASSES, dense=dense)
    ((network, training),) = (
        [json.loads(path.read_text("utf-8")) for path in paths] for paths in presets("alexnet").values()
    )
    own = {"folder": str(folder), "network": network, "training": {**training, "batch_size": asked.batch}}
    torch = {"folder": str(folder), "batch": asked.batch, "classes": CLASSES}
    steps, theirs = "benchmarks.steps.group_steps:documents", "benchmarks.steps.torch_pictures:train"
    programs = [
        Program(f"widenet, 1 process, {THREADS} threads", steps, {**own, "processes": 1, "threads": THREADS}),
        Program("widenet, 2 processes, 1 thread each", steps, {**own, "processes": 2, "threads": 1}),
        Program(
            f"PyTorch eager, {THREADS} threads",
            theirs,
            {**torch, "processes": 1, "threads": THREADS, "parallel": False},
        ),
        *(
            Program(
                f"PyTorch DistributedDataParallel, {_layout(processes)}",
                theirs,
                {**torch, "processes": processes, "threads": THREADS // processes, "parallel": True},
            )
            for processes in (1, 2)
        ),
    ]
    found = measure(programs, asked.rounds, asked.seconds)
    table = Table(
        f"AlexNet, batch {asked.batch}",
        ["program", "time / widenet, 1 process", "ms a step", "weights and state of a process"],
    )
    for measured in found:
        facts = measured.facts
        held = facts.get("weight_bytes", 0) + facts.get("state_bytes", facts.get("weight_bytes", 0))
        table.add(measured, found[0], amount(held))
    return table


def _layout(processes: int) -> str:
    return f"1 process, {THREADS} threads" if processes == 1 else f"{processes} processes, 1 thread each"


def _deep(folder: Path, asked: argparse.Namespace) -> Table:
    """Return times, memory and traffic of a deep network between wide ends."""
    write_histories(folder, WIDTH, 2 * BATCH, FEATURES)
    network = deep(UNITS)
    training = {"batch_size": BATCH, "optimizer": "momentum"}
    job = {"folder": str(folder), "network": network, "training": training, "threads": 1}
    steps = "benchmarks.steps.group_steps:documents"
    programs = [Program(name, steps, {**job, "processes": size}) for name, size in LAYOUTS.items()]
    found = measure(programs, asked.rounds, asked.seconds)
    table = Table(
        f"Five hidden layers of {UNITS:,} units between {WIDTH:,}-wide ends, batch {BATCH}",
        [
            "layout",
            "time / that of 1 process",
            "ms a step",
            "efficiency",
            "weights and state",
            "peak memory",
            "planned",
            "sent a step",
        ],
    )
    for measured in found:
        table.add(measured, found[0], *_cells(measured, found[0], network, training))
    table.notes.append(
        f"Efficiency: speed-up over 1 process, by the threads that run at a time, at most {THREADS}."
        " Bytes are those of the first process. What is sent is planned; tests compare the plan with counted"
        " bytes."
    )
    return table


def _cells(
    measured: Measured, alone: Measured, network: dict[str, Any], training: dict[str, Any]
) -> list[str]:
    size = measured.program.arguments["processes"]
    fields = {"items": Width(WIDTH)}
    layout = bind(NetworkSpec.of(network), TrainingSpec.of(training), fields)
    job = Job(layout, {"items": float(FEATURES)}, num_processes=size)
    gains = [1 / ratio / min(size, THREADS) for ratio in measured.ratios(alone)]
    facts = measured.facts
    return [
        spread(gains, "{:.0%}"),
        amount(facts["weight_bytes"] + facts["state_bytes"]),
        amount(facts["peak_bytes"]),
        amount(memory(job, 0).total),
        amount(work(job).sent_bytes),
    ]


def deep(units: int) -> dict[str, Any]:
    """Return a network of five hidden layers between the items and themselves."""
    hidden = [{"name": f"hidden {number}", "units": units, "activation": "relu"} for number in range(1, 6)]
    return {
        "layers": [
            {"name": "history", "kind": "input", "field": "items"},
            *hidden,
            {"name": "next", "kind": "output", "field": "items"},
        ]
    }


_CASES = {"alexnet": _alexnet, "deep": _deep}
