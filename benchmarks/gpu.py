"""Times training steps on one CUDA device, beside PyTorch's and as a share of its matrix products."""

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from benchmarks.alternately import Measured, Program
from benchmarks.places import workplace
from benchmarks.results import Table, publish, spread
from benchmarks.steps import torch_gpu, widenet_steps
from benchmarks.synthetic import write_histories

Steps = Callable[[int], dict[str, Any]]

_WARMUP = 3
_SQUARE = 8192


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

    def programs(self, folder: str) -> dict[str, Callable[[], Steps]]:
        """Return widenet in float32 and bfloat16, each with and without a CUDA graph, and its rivals."""
        job = {
            "folder": folder,
            "hidden": self.hidden,
            "softmax": self.softmax,
            "batch": self.batch,
            "optimizer": self.optimizer,
        }

        def ours(precision: str, cuda_graph: bool = False) -> Callable[[], Steps]:
            more = {"precision": precision, "device": "cuda", "cuda_graph": cuda_graph}
            return lambda: widenet_steps.train(**job, threads=1, **more)  # type: ignore[arg-type]

        def theirs(compiled: bool, host: bool) -> Callable[[], Steps]:
            return lambda: torch_gpu.train(**job, compiled=compiled, dense_on_host=host)  # type: ignore[arg-type]

        if not self.dense:
            return {
                "widenet, bfloat16": ours("bfloat16"),
                "widenet, bfloat16, as a CUDA graph": ours("bfloat16", cuda_graph=True),
            }
        rivals = {
            f"PyTorch{compiler}, dense rows made on the {place}": theirs(bool(compiler), place == "host")
            for compiler in ("", ", torch.compile")
            for place in ("host", "device")
        }
        own = {"widenet": ours("float32"), "widenet, as a CUDA graph": ours("float32", cuda_graph=True)}
        half = {
            "widenet, bfloat16": ours("bfloat16"),
            "widenet, bfloat16, as a CUDA graph": ours("bfloat16", cuda_graph=True),
        }
        return own | half | rivals

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


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--steps", type=int, default=20, help="steps in a turn")


def run(asked: argparse.Namespace) -> None:
    """Print a table for each case."""
    if not torch.cuda.is_available():
        print("This measures a CUDA device, and torch sees none. Run it where there is one.", file=sys.stderr)
        sys.exit(2)
    rate, tables = _matrix_rate(asked.rounds), []
    for name in asked.cases:
        case = CASES[name]
        with workplace() as folder:
            write_histories(folder, case.width, 4 * case.batch)
            found = [
                _measured(name, make, asked.rounds, asked.steps)
                for name, make in case.programs(str(folder)).items()
            ]
        tables.append(_table(case, found, rate))
        print(tables[-1], flush=True)
    publish("gpu", tables, asked.out)


def _measured(name: str, make: Callable[[], Steps], rounds: int, number: int) -> Measured:
    """Measure the seconds per step of one program; every turn waits until the device has finished."""
    measured = Measured(Program(name, "", {}), steps=number)
    try:
        steps = make()
        for _ in range(_WARMUP):
            measured.first = measured.first or steps(1)
            steps(1)
        torch.cuda.reset_peak_memory_stats()
        for _ in range(rounds):
            measured.seconds.append(_seconds(lambda: steps(number)) / number)
        measured.facts = {"peak_bytes": torch.cuda.max_memory_allocated()}
    except torch.cuda.OutOfMemoryError:
        measured.problem, measured.seconds = "out of memory", []
    torch.cuda.empty_cache()
    return measured


def _seconds(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    started = perf_counter()
    work()
    torch.cuda.synchronize()
    return perf_counter() - started


def _matrix_rate(rounds: int) -> float:
    """Return the operations per second of the device's bfloat16 products, the median of some rounds."""
    left, right = (torch.randn(_SQUARE, _SQUARE, device="cuda").bfloat16() for _ in range(2))
    seconds = [_seconds(lambda: [left @ right for _ in range(20)]) for _ in range(rounds + _WARMUP)]
    return 20 * 2 * _SQUARE**3 / statistics.median(seconds[_WARMUP:])


def _table(case: Case, found: list[Measured], rate: float) -> Table:
    columns = [
        "program",
        "time / the first's",
        "ms a step",
        "examples a second",
        "share of the matrix rate",
        "peak GB",
        "first loss",
    ]
    table = Table(case.title, columns)
    for measured in found:
        if measured.problem is None:
            shares = spread([case.operations / seconds / rate for seconds in measured.seconds], "{:.2f}")
            peak, loss = f"{measured.facts['peak_bytes'] / 1e9:.2f}", f"{measured.first['loss']:,.5g}"
            table.add(measured, found[0], f"{case.batch / measured.median:,.0f}", shares, peak, loss)
        else:
            table.add(measured, found[0])
    table.notes.append(
        f"{torch.cuda.get_device_name()}; its bfloat16 products of {_SQUARE:,} x {_SQUARE:,}:"
        f" {rate / 1e12:,.0f} TFLOP/s."
    )
    return table
