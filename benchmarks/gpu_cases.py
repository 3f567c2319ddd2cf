"""Training steps on CUDA devices, beside PyTorch's and the device's own matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch

from benchmarks.alternately import Measured, Program, measure, measure_alone
from benchmarks.places import workplace
from benchmarks.results import Table, quartiles, spread
from benchmarks.synthetic import write_histories

_OURS, _RIVAL = "benchmarks.steps.widenet_steps:train", "benchmarks.steps.torch_gpu:train"
_GROUP, _PRODUCTS = "benchmarks.steps.group_steps:train", "benchmarks.steps.device_products:train"
_LARGE_CHUNK = 10_500_000_000
"""Logits of a chunk that `torch.compile` keeps in bfloat16: 1,024 examples of 10,000,000 units."""


@dataclass(frozen=True)
class Rival:
    """PyTorch in one form; see `torch_gpu.train`."""

    name: str
    form: str
    precision: str
    mode: str | None = None
    cells: int = 2**31


_WHOLE = Rival("bfloat16, EmbeddingBag", "bags", "bfloat16")
_COMPILED = Rival("bfloat16, EmbeddingBag, torch.compile", "bags", "bfloat16", "default")
_TF32 = Rival("TF32, EmbeddingBag, torch.compile", "bags", "tf32", "default")
_SMALL_CHUNKS = Rival("bfloat16, EmbeddingBag, loss in chunks of 2^31 logits", "chunks", "bfloat16")
_CHUNKS = Rival(
    "bfloat16, EmbeddingBag, torch.compile, loss in chunks of 10^10 logits",
    *("chunks", "bfloat16", "default", _LARGE_CHUNK),
)

_LINEAR = Rival("bfloat16, linear_cross_entropy, one target an example", "linear", "bfloat16")
_LIGER = Rival("bfloat16, Liger, one target an example", "liger", "bfloat16")


@dataclass(frozen=True)
class Case:
    """A network and its batch, widenet's precisions, and PyTorch's forms.

    Attributes:
        title: Title of the table.
        width: Items.
        hidden: Units of the hidden layers.
        batch: Batch size.
        softmax: Whether the output is a softmax.
        rivals: PyTorch's forms, the most important one first.
        precisions: widenet's precisions; the first one is the base of all ratios.
        optimizer: Name of the optimizer.
        alone: Whether each program needs a device's whole memory.
        device: Kind of device.
    """

    title: str
    width: int
    hidden: tuple[int, ...]
    batch: int
    softmax: bool
    rivals: Sequence[Rival]
    precisions: Sequence[str] = ("bfloat16",)
    optimizer: str = "rmsprop"
    alone: bool = False
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
            return on_device(name, place, self.device, **more)

        found = [program("the device's products in bfloat16", _PRODUCTS, size=self.square)]
        found += [
            program(f"widenet, {precision}", _OURS, **job, threads=1, precision=precision)
            for precision in self.precisions
        ]
        counts = range(2, torch.cuda.device_count() + 1) if self.device == "cuda" else ()
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
        return found + [
            program(
                f"PyTorch, {rival.name}",
                _RIVAL,
                **job,
                form=rival.form,
                precision=rival.precision,
                mode=rival.mode,
                cells=rival.cells,
            )
            for rival in self.rivals
        ]

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
        [
            _COMPILED,
            _WHOLE,
            _TF32,
            Rival("TF32, EmbeddingBag", "bags", "tf32"),
            Rival("bfloat16, dense rows made on the device, torch.compile", "dense", "bfloat16", "default"),
            Rival("bfloat16, dense rows, CUDA graphs", "dense", "bfloat16", "reduce-overhead"),
        ],
        ("bfloat16", "tf32", "float32"),
    ),
    "d": Case(
        "1,000,000 x 1024 x 1,000,000, softmax, batch 4096",
        1_000_000,
        (1024,),
        4096,
        True,
        [_CHUNKS, _COMPILED, _LINEAR, _LIGER, _TF32, _WHOLE],
        ("bfloat16", "tf32"),
        alone=True,
    ),
    "e": Case(
        "10,000,000 x 256 x 10,000,000, softmax, sgd, batch 4096",
        10_000_000,
        (256,),
        4096,
        True,
        [_CHUNKS, _LINEAR, _LIGER, _SMALL_CHUNKS, _WHOLE],
        optimizer="sgd",
        alone=True,
    ),
}
TRIALS = {
    "a": Case(
        "A trial on a CPU: 300 x 16 x 300, sigmoid",
        300,
        (16,),
        32,
        False,
        [_WHOLE, Rival("bfloat16, dense rows, torch.compile", "dense", "bfloat16", "default")],
        ("bfloat16", "float32"),
        device="cpu",
    ),
    "e": Case(
        "A trial on a CPU: 300 x 16 x 300, softmax, sgd, one program after the other",
        300,
        (16,),
        32,
        True,
        [Rival("bfloat16, EmbeddingBag, loss in chunks", "chunks", "bfloat16", cells=3_000), _WHOLE, _LINEAR],
        optimizer="sgd",
        alone=True,
        device="cpu",
    ),
}


def on_device(name: str, place: str, device: str, **arguments: Any) -> Program:
    """Return a program of `steps.on_device`."""
    job = {"place": place, "device": device, **arguments}
    return Program(name, "benchmarks.steps.on_device:train", job, on_device=True)


def table_of(case: Case, rounds: int, seconds: float, limit: float) -> Table:
    """Measure a case; programs that have not warmed up after `limit` seconds are left out."""
    deadline = monotonic() + limit
    with workplace() as folder:
        write_histories(folder, case.width, 4 * case.batch)
        programs = case.programs(str(folder))
        if case.alone:
            found = measure_alone(programs, rounds, seconds, deadline=deadline)
        else:
            found = measure(programs, rounds, seconds, together=True, deadline=deadline)
    return _table(case, found)


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
        rates = [
            case.operations / (devices * products.facts["operations"]) * theirs / ours
            for theirs, ours in zip(products.seconds, measured.seconds, strict=True)
        ]
        peak, loss = f"{measured.facts['peak_bytes'] / 1e9:.2f}", f"{measured.first['loss']:,.5g}"
        rate = f"{case.batch / measured.median:,.0f}"
        table.add(measured, programs[0], rate, spread(rates, "{:.2f}"), peak, loss)
    if products.problem is None:
        operations = [products.facts["operations"] / seconds / 1e12 for seconds in products.seconds]
        middle, *_ = quartiles(operations)
        order = "before the programs" if case.alone else "in turn with the programs"
        table.notes.append(
            f"{products.facts['device']}; its bfloat16 products of {case.square:,} x {case.square:,}:"
            f" {middle:,.1f} TFLOP/s, measured {order}."
        )
    return table
