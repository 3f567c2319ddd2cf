"""Times training steps on CUDA devices, beside PyTorch's and the device's own matrix products.

`python -m benchmarks.gpu` needs fewer libraries than `python -m benchmarks gpu`.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.alternately import Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish, quartiles, spread
from benchmarks.synthetic import write_histories

_OURS, _RIVAL = "benchmarks.steps.widenet_steps:train", "benchmarks.steps.torch_gpu:train"
_GROUP, _PRODUCTS = "benchmarks.steps.group_steps:train", "benchmarks.steps.device_products:train"


@dataclass(frozen=True)
class Case:
    """A network, its batch, and whether PyTorch with dense rows could hold it."""

    title: str
    width: int
    hidden: tuple[int, ...]
    batch: int
    softmax: bool
    dense: bool = False
    optimizer: str = "rmsprop"
    device: str = "cuda"

    def programs(self, folder: str) -> list[Program]:
        """Return the device's products, widenet by precision and by number of devices, and its rivals."""
        job = {
            "folder": folder,
            "hidden": self.hidden,
            "softmax": self.softmax,
            "batch": self.batch,
            "optimizer": self.optimizer,
        }

        def program(name: str, place: str, **more: Any) -> Program:
            arguments = {"place": place, "device": self.device, **more}
            return Program(name, "benchmarks.steps.on_device:train", arguments, on_device=True)

        precisions = ("bfloat16", "tf32", "float32") if self.dense else ("bfloat16",)
        found = [program("the device's products in bfloat16", _PRODUCTS, size=self.square)]
        found += [
            program(f"widenet, {precision}", _OURS, **job, threads=1, precision=precision)
            for precision in precisions
        ]
        counts = range(2, torch.cuda.device_count() + 1) if self.device == "cuda" else (2,)
        found += [
            program(
                f"widenet, bfloat16, {count} processes",
                _GROUP,
                **job,
                processes=count,
                threads=1,
                precision="bfloat16",
            )
            for count in counts
            if count & (count - 1) == 0
        ]
        if self.dense:
            found += [
                program(
                    f"PyTorch{', torch.compile' if compiled else ''}, dense rows made on the {place}",
                    _RIVAL,
                    **job,
                    compiled=compiled,
                    dense_on_host=place == "host",
                )
                for compiled in (False, True)
                for place in ("host", "device")
            ]
        return found

    @property
    def square(self) -> int:
        """Rows and columns of the operands whose products give the device's rate."""
        return 8192 if self.device == "cuda" else 256

    @property
    def operations(self) -> int:
        """Multiplications and additions of the output's three products in a step."""
        return 3 * 2 * self.batch * self.width * self.hidden[-1]


CASES = {
    "a": Case(
        "DSSTNE's benchmark: 27,278 x 1024 x 1024 x 1024 x 27,278, sigmoid, batch 256",
        27_278,
        (1024,) * 3,
        256,
        False,
        dense=True,
    ),
    "d": Case("1,000,000 x 1024 x 1,000,000, softmax, batch 4096", 1_000_000, (1024,), 4096, True),
    "e": Case(
        "10,000,000 x 256 x 10,000,000, softmax, sgd, batch 4096",
        10_000_000,
        (256,),
        4096,
        True,
        optimizer="sgd",
    ),
}
TRIAL = Case("A trial on a CPU: 300 x 16 x 300, softmax", 300, (16,), 32, True, dense=True, device="cpu")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn, at least one step")
    parser.add_argument(
        "--trial", action="store_true", help="one small case on a CPU, to see that the measurement runs"
    )


def run(asked: argparse.Namespace) -> None:
    """Print a table for each case."""
    if not (torch.cuda.is_available() or asked.trial):
        print("This measures a CUDA device, and torch sees none. Run it where there is one.", file=sys.stderr)
        sys.exit(2)
    cases = [TRIAL] if asked.trial else [CASES[name] for name in asked.cases]
    rounds, seconds = (1, 0.0) if asked.trial else (asked.rounds, asked.seconds)
    tables = []
    for case in cases:
        with workplace() as folder:
            write_histories(folder, case.width, 4 * case.batch)
            tables.append(_table(case, measure(case.programs(str(folder)), rounds, seconds)))
        print(tables[-1], flush=True)
        publish("gpu", tables, asked.out)  # after each case: the machine may be lent for a time


def _table(case: Case, found: list[Measured]) -> Table:
    columns = [
        "program",
        "time / widenet's in bfloat16",
        "ms a step",
        "examples a second",
        "share of the matrix rate",
        "peak GB",
        "first loss",
    ]
    table = Table(case.title, columns)
    products, *programs = found
    for measured in programs:
        if measured.problem is not None or products.problem is not None:
            table.add(measured, programs[0])
            continue
        devices = len(measured.facts.get("ranks", (0,)))
        shares = [
            case.operations / (devices * products.facts["operations"]) * theirs / ours
            for theirs, ours in zip(products.seconds, measured.seconds, strict=True)
        ]
        peak, loss = f"{measured.facts['peak_bytes'] / 1e9:.2f}", f"{measured.first['loss']:,.5g}"
        rate = f"{case.batch / measured.median:,.0f}"
        table.add(measured, programs[0], rate, spread(shares, "{:.2f}"), peak, loss)
    if products.problem is None:
        rates = [products.facts["operations"] / seconds / 1e12 for seconds in products.seconds]
        middle, *_ = quartiles(rates)
        table.notes.append(
            f"{products.facts['device']}; its bfloat16 products of {case.square:,} x {case.square:,}:"
            f" {middle:,.1f} TFLOP/s, measured in turn with the programs."
        )
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON, the tables and the plot")
    options(parser)
    run(parser.parse_args())
