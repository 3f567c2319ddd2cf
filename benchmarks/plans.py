"""Plans trainings of 10 million to 1 billion items on 8 devices of 141 GB, with this machine's step times."""

import argparse
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed

from benchmarks.results import Table, machine, publish
from widenet.plan.binding import bind
from widenet.plan.layout import Job, WeightsIn, Width
from widenet.plan.memory import memory, smallest, with_room, work
from widenet.plan.numbers import amount
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DEVICES, DEVICE_BYTES, HIDDEN, BATCH = 8, 141 * 10**9, 256, 4096
EVERYBODY = 10**7
WIDTHS, OPTIMIZERS = (10**7, 10**8, 10**9), ("adam", "sgd")
LINK_BYTES, PRODUCT = 2**26, 2048


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each rate")


def run(asked: argparse.Namespace) -> None:
    """Print a row for each width and optimizer."""
    products, link = _matrix_rate(asked.rounds), _link_rate(asked.rounds)
    columns = [
        "items",
        "optimizer",
        "GB on each of 8",
        "fewest devices",
        "operations a step and device",
        "bytes sent",
        "s a step",
    ]
    table = Table(
        f"{HIDDEN} hidden units, softmax, batch {BATCH}, {DEVICES} devices of {amount(DEVICE_BYTES)}", columns
    )
    for width in WIDTHS:
        for optimizer in OPTIMIZERS:
            table.rows.append(_row(width, optimizer, products, link))
    where = "CUDA" if torch.cuda.is_available() else f"a CPU ({machine()}), {torch.get_num_threads()} threads"
    table.notes.append(
        f"Rates measured here: {amount(products, 'FLOP/s')} in float32 products on {where};"
        f" {amount(link, 'B/s')} added up between 2 processes on"
        f" {'CUDA' if torch.cuda.device_count() > 1 else 'this CPU'}. The time is operations and bytes over"
        " these rates, nothing else."
    )
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


def _row(width: int, optimizer: str, products: float, link: float) -> list[str]:
    job = job_of(width, {"optimizer": optimizer}, DEVICES)
    fewest, needed, step = (
        smallest(job, DEVICE_BYTES),
        memory(replace(job, kept_bytes=0)).total,
        work(with_room(job, DEVICE_BYTES)),
    )
    seconds = step.operations / products + step.sent_bytes / link
    enough = "none" if fewest is None else f"{fewest.num_processes}"
    return [
        f"{width:,}",
        optimizer,
        f"{needed / 1e9:,.0f}",
        enough,
        amount(step.operations, "FLOP"),
        amount(step.sent_bytes),
        f"{seconds:,.3g}",
    ]


def _matrix_rate(rounds: int) -> float:
    """Return the operations per second of a large float32 product, the best of some rounds."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left = torch.randn(PRODUCT, PRODUCT, device=device)
    found = torch.empty_like(left)
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        torch.mm(left, left, out=found)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2 * PRODUCT**3 / min(seconds)


def _link_rate(rounds: int) -> float:
    """Return the bytes per second that two processes each send in an all-reduce of int64; the best round."""
    context = multiprocessing.get_context("spawn")
    seconds = context.SimpleQueue()
    with TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_reduce, args=(str(Path(folder) / "store"), rank, rounds, seconds))
            for rank in range(2)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0
        found = [seconds.get() for _ in processes]
    return LINK_BYTES / float(max(found))


def _reduce(store: str, rank: int, rounds: int, seconds: "multiprocessing.queues.SimpleQueue[float]") -> None:
    several = torch.cuda.device_count() > 1
    if several:
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl" if several else "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    numbers = torch.ones(LINK_BYTES // 8, dtype=torch.int64, device="cuda" if several else "cpu")
    best = float("inf")
    for _ in range(rounds):
        distributed.barrier()
        started = time.perf_counter()
        distributed.all_reduce(numbers)
        if several:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    seconds.put(best)
    distributed.destroy_process_group()
