"""Plans trainings of 10 million to 1 billion items on 8 devices of 141 GB."""

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.results import Table, publish
from widenet.plan.binding import bind
from widenet.plan.layout import Job, WeightsIn, Width
from widenet.plan.memory import memory, smallest, with_room, work
from widenet.plan.numbers import amount
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DEVICES, DEVICE_BYTES, HIDDEN, BATCH = 8, 141 * 10**9, 256, 4096
EVERYBODY = 10**7
WIDTHS, OPTIMIZERS = (10**7, 10**8, 10**9), ("adam", "sgd")


def options(parser: argparse.ArgumentParser) -> None:
    """Add no options: there is nothing to choose."""


def run(asked: argparse.Namespace) -> None:
    """Print a row for each width and optimizer."""
    columns = [
        "items",
        "optimizer",
        "GB on each of 8",
        "fewest devices",
        "bytes sent",
    ]
    table = Table(
        f"{HIDDEN} hidden units, softmax, batch {BATCH}, {DEVICES} devices of {amount(DEVICE_BYTES)}", columns
    )
    for width in WIDTHS:
        for optimizer in OPTIMIZERS:
            table.rows.append(_row(width, optimizer))
    print(table)
    publish("plans", [table], asked.out)


def network(units: int) -> dict[str, Any]:
    """Return the document of a network from items to items."""
    layers = [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": units, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    return {"layers": layers}


def job_of(
    width: int, training: dict[str, Any], devices: int, units: int = HIDDEN, weights_in: WeightsIn = "device"
) -> Job:
    """Return the job of this network on CUDA devices, by default for batches of 4096."""
    spec = TrainingSpec.of({"batch_size": BATCH, **training})
    layout = bind(NetworkSpec.of(network(units)), spec, {"items": Width(width)})
    return Job(layout, num_processes=devices, device="cuda", weights_in=weights_in)


def _row(width: int, optimizer: str) -> list[str]:
    job = job_of(width, {"optimizer": optimizer}, DEVICES)
    fewest, needed, step = (
        smallest(job, DEVICE_BYTES),
        memory(replace(job, kept_bytes=0)).total,
        work(with_room(job, DEVICE_BYTES)),
    )
    enough = "none" if fewest is None else f"{fewest.num_processes}"
    return [
        f"{width:,}",
        optimizer,
        f"{needed / 1e9:,.0f}",
        enough,
        amount(step.sent_bytes),
    ]
