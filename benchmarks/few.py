"""Times rankings for few people and for many, beside torch's product and `topk`, and one command.

The command recommends for a list of items. Most of its time goes to `import torch`.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.alternately import Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish, spread
from benchmarks.smaller import drawn_network, rankings
from widenet import dataset_from_lists, train

ITEMS, COLUMNS, K = 41_000, 64, 20
PEOPLE = (1, 8, 64, 29_858)
BLOCK = 512
"""People whose scores torch computes at once: all scores take 5 GB."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=9, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn, at least one step")


def run(asked: argparse.Namespace) -> None:
    """Print the table."""
    table = Table(
        f"The best {K} of {ITEMS:,} items by product of {COLUMNS} numbers, for few people",
        ["program", "time / widenet's", "ms"],
    )
    for num in PEOPLE:
        _add_times(num, asked, table)
    print(table, flush=True)
    commands = _commands(asked.rounds)
    print(commands)
    publish("few", [table, commands], asked.out)


def _commands(rounds: int) -> Table:
    """Return the seconds of a command that recommends, beside those of importing torch, alternately."""
    layers = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": COLUMNS, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    table = Table("One command", ["command", "seconds", "seconds more than `import torch`"])
    with workplace() as folder:
        lists = [[user, (user + 1) % ITEMS] for user in range(1024)]
        dataset_from_lists(folder / "data", lists, width=ITEMS)
        train({"layers": layers}, {"epochs": 1}, folder / "data", folder / "run")
        lines = {
            "import torch": ["-c", "import torch"],
            "recommend": ["-m", "widenet", "recommend", str(folder / "run"), "--items", "1", "2"],
        }
        _seconds(lines["recommend"], folder)
        turns = [{name: _seconds(line, folder) for name, line in lines.items()} for _ in range(rounds)]
    for name in lines:
        more = [turn[name] - turn["import torch"] for turn in turns]
        seconds = spread([turn[name] for turn in turns], "{:.2f}")
        table.rows.append([name, seconds, spread(more, "{:.2f}")])
    return table


def _seconds(words: list[str], folder: Path) -> float:
    """Return the seconds of a process of Python, which may keep what it compiles."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = perf_counter()
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=folder, env=variables)
    return perf_counter() - started


def _add_times(num: int, asked: argparse.Namespace, table: Table) -> None:
    programs = [
        Program(f"widenet, {num}", "benchmarks.few:widenet", {"num": num}, ["widenet"]),
        Program(f"PyTorch, {num}", "benchmarks.few:pytorch", {"num": num}),
    ]
    found = measure(programs, asked.rounds, asked.seconds)
    for measured in found:
        table.add(measured, found[0])


def widenet(num: int) -> Callable[[int], dict[str, Any]]:
    """Return steps of `widenet.predict.top_k`."""
    return rankings(drawn_network(max(PEOPLE), ITEMS, COLUMNS), num, K)


def pytorch(num: int) -> Callable[[int], dict[str, Any]]:
    """Return steps of a product of the people's rows with all items, and torch's `topk`."""
    import torch

    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(max(PEOPLE), COLUMNS, generator=draw)
    weight, bias = torch.randn(ITEMS, COLUMNS, generator=draw), torch.zeros(ITEMS)

    def steps(number: int) -> dict[str, Any]:
        with torch.inference_mode():
            for _ in range(number):
                for first in range(0, num, BLOCK):
                    users = vectors[first : min(first + BLOCK, num)]
                    torch.topk(torch.addmm(bias, users, weight.T), K)
        return {}

    return steps
