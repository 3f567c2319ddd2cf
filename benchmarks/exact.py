"""A training step of a linear output under l2 without its logits, beside the same step with every logit."""

import argparse
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.places import workplace
from benchmarks.results import Table, publish
from benchmarks.synthetic import write_histories

WIDTH, HIDDEN, BATCH, EXAMPLES = 1_000_000, 128, 256, 8192
LOSS_TOLERANCE = 1e-5


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument(
        "--targets", nargs="+", type=int, default=[30, 144], help="targets of an example, a table each"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of either")
    parser.add_argument(
        "--seconds",
        type=float,
        default=15.0,
        help="length of a turn: a window of steps without logits, or more",
    )


def run(asked: argparse.Namespace) -> None:
    """Print a table for each number of targets."""
    tables = []
    for targets in asked.targets:
        with workplace() as folder:
            write_histories(folder, WIDTH, EXAMPLES, targets)
            programs = [
                Program(
                    name,
                    "benchmarks.exact:train",
                    {"folder": str(folder), "defers_rows": defers_rows},
                    ["widenet", "torch"],
                )
                for name, defers_rows in (("without the logits", True), ("with every logit", False))
            ]
            tables.append(_table(targets, measure(programs, asked.rounds, asked.seconds)))
        print(tables[-1], flush=True)
    publish("exact", tables, asked.out)


def _table(targets: int, found: list[Measured]) -> Table:
    title = (
        f"{WIDTH:,} x {HIDDEN} x {WIDTH:,}, linear, l2, sgd, batch {BATCH}, {targets} targets an example,"
        f" {THREADS} threads"
    )
    table = Table(title, ["step", "time / that without the logits", "ms a step", "peak GB", "first loss"])
    losses = [measured.first.get("loss", 0.0) for measured in found]
    if all(losses) and abs(losses[0] / losses[1] - 1) > LOSS_TOLERANCE:
        raise AssertionError(f"the first losses of one training must be the same; got {losses}")
    for measured, loss in zip(found, losses, strict=True):
        table.add(measured, found[0], f"{measured.facts.get('peak_bytes', 0) / 1e9:.2f}", f"{loss:,.7g}")
    return table


def train(folder: str, defers_rows: bool) -> Callable[[int], dict[str, Any]]:
    """Return the steps of one network; without `defers_rows`, every logit is computed."""
    import torch

    from benchmarks.steps.widenet_steps import steps_of
    from widenet.parallel.group import exchange_for
    from widenet.parallel.threads import one_thread_an_operation
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    layers = [
        {"name": "history", "kind": "input", "field": "items", "scale": "rsqrt"},
        {"name": "taste", "units": HIDDEN, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items", "activation": "linear", "loss": "l2"},
    ]
    training = TrainingSpec.of(
        {"epochs": 10_000, "batch_size": BATCH, "optimizer": {"kind": "sgd", "learning_rate": 0.5}}
    )
    exchange = exchange_for(training.shards, torch.device("cpu"))
    with patch("widenet.model.build.defers_rows", return_value=defers_rows):
        return steps_of(
            folder, NetworkSpec.of({"layers": layers}), training, exchange, one_thread_an_operation
        )
