"""Times rankings for few people, beside torch's product and `topk`."""

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks.alternately import Program, measure
from benchmarks.results import Table, publish
from benchmarks.smaller import drawn_network, rankings

ITEMS, COLUMNS, K = 41_000, 64, 20
PEOPLE = (1, 8, 64)


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
    publish("few", [table], asked.out)


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
    users = torch.arange(num)

    def steps(number: int) -> dict[str, Any]:
        with torch.inference_mode():
            for _ in range(number):
                torch.topk(torch.addmm(bias, vectors[users], weight.T), K)
        return {}

    return steps
