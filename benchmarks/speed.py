"""Times whole training steps of widenet and of rivals, beside the matrix products that all of them need."""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish, quartiles, spread
from benchmarks.synthetic import write_histories

KERAS_PYTHON = os.environ.get("WIDENET_KERAS_PYTHON", sys.executable)
"""The interpreter of an environment that holds Keras and TensorFlow."""

LOSS_TOLERANCE = 0.03
"""Tolerance of first losses, which differ by the random weights; a program further off does another job."""

DENSE = {
    "PyTorch": ("torch_dense:eager", ["torch"], sys.executable),
    "PyTorch, torch.compile": ("torch_dense:compiled", ["torch"], sys.executable),
    "Keras": ("keras_dense:train", ["keras", "tensorflow-cpu"], KERAS_PYTHON),
}
BAGS = {
    "PyTorch, EmbeddingBag": ("torch_bags:eager", ["torch"], sys.executable),
    "PyTorch, EmbeddingBag, torch.compile": ("torch_bags:compiled", ["torch"], sys.executable),
    "PyTorch, EmbeddingBag, torch.compile, autocast": ("torch_bags:autocast", ["torch"], sys.executable),
}
TIED = {
    "PyTorch, EmbeddingBag": ("torch_tied:eager", ["torch"], sys.executable),
    "PyTorch, EmbeddingBag, torch.compile": ("torch_tied:compiled", ["torch"], sys.executable),
    "PyTorch, by hand in one pass": ("torch_tied:by_hand", ["torch"], sys.executable),
    "PyTorch, EmbeddingBag, torch.compile, autocast": ("torch_tied:autocast", ["torch"], sys.executable),
}
NEXT = {
    "PyTorch, linear_cross_entropy": ("torch_next:eager", ["torch"], sys.executable),
    "PyTorch, linear_cross_entropy, torch.compile": ("torch_next:compiled", ["torch"], sys.executable),
}


@dataclass(frozen=True)
class Case:
    """A network, its batch, and whether rivals can hold dense input.

    With `next_item` it has one target. With `tied` it is that of the default documents: linear units, and
    cosines with the same vectors.
    """

    title: str
    width: int
    hidden: Sequence[int]
    batch: int
    softmax: bool = False
    optimizer: str = "rmsprop"
    dense: bool = True
    examples: int = 8192
    next_item: bool = False
    tied: bool = False

    def programs(self, folder: Path) -> list[Program]:
        """widenet, its two bounds, widenet in bfloat16 where it fits in beside the others, the rivals."""
        job = {
            "hidden": self.hidden,
            "softmax": self.softmax,
            "batch": self.batch,
            "optimizer": self.optimizer,
            "threads": THREADS,
        }
        bound = {"width": self.width, "hidden": self.hidden, "batch": self.batch, "threads": THREADS}
        rivals = NEXT if self.next_item else TIED if self.tied else {**(DENSE if self.dense else {}), **BAGS}
        own = {
            "folder": str(folder),
            **job,
            "target": "next" if self.next_item else "items",
            "tied": self.tied,
        }
        ours = Program("widenet", "benchmarks.steps.widenet_steps:train", own, ["widenet", "torch"])
        half = replace(ours, name="widenet, bfloat16", arguments={**ours.arguments, "precision": "bfloat16"})
        return [
            ours,
            Program("the step's products", "benchmarks.steps.products:whole", bound),
            Program("the step's products, in tiles", "benchmarks.steps.products:tiled", bound),
            *([half] if self.dense else []),
            *(
                Program(name, f"benchmarks.steps.{place}", {"folder": str(folder), **job}, libraries, python)
                for name, (place, libraries, python) in rivals.items()
            ),
        ]


CASES = {
    "a": Case(
        "DSSTNE's benchmark: 27,278 x 1024 x 1024 x 1024 x 27,278, sigmoid, batch 256",
        27_278,
        (1024,) * 3,
        256,
    ),
    "b256": Case("DSSTNE's sample: 27,278 x 128 x 27,278, sigmoid, batch 256", 27_278, (128,), 256),
    "adam": Case("The same, adam, batch 256", 27_278, (128,), 256, optimizer="adam"),
    "b1024": Case("DSSTNE's sample: 27,278 x 128 x 27,278, sigmoid, batch 1024", 27_278, (128,), 1024),
    "c": Case("27,278 x 600 x 27,278, softmax, batch 512", 27_278, (600,), 512, softmax=True),
    "usual64": Case(
        "The default network, 27,278 x 64 x 27,278, cosines, adam, batch 256",
        27_278,
        (64,),
        256,
        softmax=True,
        optimizer="adam",
        tied=True,
    ),
    "usual512": Case(
        "The default network, 27,278 x 512 x 27,278, cosines, adam, batch 256",
        27_278,
        (512,),
        256,
        softmax=True,
        optimizer="adam",
        tied=True,
    ),
    "next": Case(
        "27,278 x 600 x 27,278, softmax, one item to come, batch 512",
        27_278,
        (600,),
        512,
        softmax=True,
        next_item=True,
    ),
    "d": Case(
        "1,000,000 x 128 x 1,000,000, softmax, batch 1024",
        1_000_000,
        (128,),
        1024,
        softmax=True,
        dense=False,
        examples=4096,
    ),
    "e": Case(
        "10,000,000 x 64 x 10,000,000, softmax, sgd, batch 1024",
        10_000_000,
        (64,),
        1024,
        True,
        "sgd",
        dense=False,
        examples=2048,
    ),
}
BY_NAME_ONLY = ("e",)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=[name for name in CASES if name not in BY_NAME_ONLY]
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a turn, at least one step")


def run(asked: argparse.Namespace) -> None:
    """Print a table for each case."""
    tables = []
    for name in asked.cases:
        with workplace() as folder:
            case = CASES[name]
            facts = write_histories(folder, case.width, case.examples, next_item=case.next_item)
            tables.append(_table(case, facts, measure(case.programs(folder), asked.rounds, asked.seconds)))
            print(tables[-1], flush=True)
    publish("speed", tables, asked.out)


def _table(case: Case, facts: dict[str, int], found: list[Measured]) -> Table:
    columns = [
        "program",
        "time / widenet's",
        "ms a step",
        "time / the fastest products'",
        "examples a second",
        "peak GB",
        "first loss",
    ]
    table = Table(case.title, columns)
    ours, products = found[0], min(found[1:3], key=_median)
    for measured in found:
        _check_loss(measured, ours)
        if measured.problem is None and products.problem is None:
            over = spread(measured.ratios(products), "{:.2f}")
            loss = f"{measured.first['loss']:,.5g}" if "loss" in measured.first else "-"
            table.add(
                measured,
                ours,
                over,
                f"{case.batch / measured.median:,.0f}",
                f"{measured.facts['peak_bytes'] / 1e9:.2f}",
                loss,
            )
        else:
            table.add(measured, ours)
    half = next((measured for measured in found if measured.program.name == "widenet, bfloat16"), ours)
    for own, is_half in ((ours, False), (half, True)):
        rivals = [
            measured
            for measured in found[3:]
            if measured is not half and ("autocast" in measured.program.name) == is_half
        ]
        timed = [rival for rival in rivals if rival.problem is None and own.problem is None]
        if timed:
            middle, strongest = min(
                ((quartiles(rival.ratios(own))[0], rival) for rival in timed), key=lambda pair: pair[0]
            )
            table.notes.append(
                f"The strongest rival of {own.program.name} is {strongest.program.name}:"
                f" {middle:.2f} x its time."
            )
    if case.optimizer == "adam" and not case.tied:
        table.notes.append(
            "widenet's Adam moves only those rows of the input that a batch touches, as torch's SparseAdam"
            " does; that of the rivals moves all."
        )
    said = ", ".join(f"{number:,} {what}" for what, number in facts.items())
    table.notes.append(f"Data: {said}; optimizer {case.optimizer}, {THREADS} threads.")
    if ours.problem is None:
        table.notes.append(_memory(ours))
    return table


def _median(measured: Measured) -> float:
    """The seconds of a program's middle turn; infinite if it failed."""
    return math.inf if measured.problem is not None else measured.median


def _check_loss(measured: Measured, ours: Measured) -> None:
    """A program whose first loss is another does another job; that is a mistake here, not a result."""
    if "loss" not in measured.first or "loss" not in ours.first:
        return
    difference = abs(measured.first["loss"] / ours.first["loss"] - 1)
    if difference > LOSS_TOLERANCE:
        raise AssertionError(
            f"{measured.program.name}: the first loss is {measured.first['loss']}, widenet's"
            f" {ours.first['loss']}"
        )


def _memory(ours: Measured) -> str:
    facts = ours.facts
    extra = facts["peak_bytes"] - facts["base_bytes"] - facts["weight_bytes"] - facts["state_bytes"]
    return (
        f"widenet waits for data in {facts['waiting']:.1%} of the time. Its memory: weights"
        f" {facts['weight_bytes'] / 1e9:.2f} GB, state {facts['state_bytes'] / 1e9:.2f} GB, beyond these"
        f" {extra / 1e9:.2f} GB, and before them {facts['base_bytes'] / 1e9:.2f} GB."
    )
