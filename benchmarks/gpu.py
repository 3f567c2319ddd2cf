"""Times training steps, rankings and copies on a CUDA device, beside PyTorch's and beside `widenet plan`.

`python -m benchmarks.gpu` needs fewer libraries than `python -m benchmarks gpu`.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks import gpu_cases, gpu_plans
from benchmarks.results import Table, publish

_PLANS: dict[str, Callable[[gpu_plans.Sizes, int, float, float], Table]] = {
    "recommend": gpu_plans.recommend,
    "steps": gpu_plans.steps,
    "host": gpu_plans.host,
}
PARTS = ["e", "recommend", "steps", "host", "a", "d"]
"""All parts; those that say most come first."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="a, d, e: steps beside PyTorch's; and others"
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn, at least one step")
    parser.add_argument(
        "--limit",
        type=float,
        default=75.0,
        help="seconds of a part after which programs that have not warmed up are left out",
    )
    parser.add_argument(
        "--trial", action="store_true", help="small sizes on a CPU, to see that the measurement runs"
    )


def run(asked: argparse.Namespace) -> None:
    """Print a table for each part."""
    if not (torch.cuda.is_available() or asked.trial):
        print("This measures a CUDA device, and torch sees none. Run it where there is one.", file=sys.stderr)
        sys.exit(2)
    cases = gpu_cases.TRIALS if asked.trial else gpu_cases.CASES
    sizes = gpu_plans.TRIAL if asked.trial else gpu_plans.WHOLE
    works = {name: partial(gpu_cases.table_of, case) for name, case in cases.items()}
    works |= {name: partial(work, sizes) for name, work in _PLANS.items()}
    rounds, seconds = (1, 0.0) if asked.trial else (asked.rounds, asked.seconds)
    tables: list[Table] = []
    for name in asked.parts:
        if name in works:
            tables.append(works[name](rounds, seconds, asked.limit))
            print(tables[-1], flush=True)
            publish("gpu", tables, asked.out)  # after each part: the machine may be lent for a time


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON, the tables and the plot")
    options(parser)
    run(parser.parse_args())
