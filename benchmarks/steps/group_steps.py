"""widenet's training step in one or several processes, with reproducible sums or with plain ones."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, distributed

from benchmarks.steps.ranks import Steps, in_step
from benchmarks.steps.widenet_steps import document, steps_of
from widenet.kernels.fixed_point import Terms
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_EPOCHS = 10_000


class _PlainExchange(Exchange):
    """Sums floats with an all-reduce of floats, as most programs do; alone, its sums are its own terms."""

    def start_sum(self, *terms: Terms, where: str) -> Callable[[], list[Tensor]]:
        """Return the sums, in the order in which numbers arrive."""
        if self.size == 1:
            return lambda: [each[0] for each in terms]

        def summed() -> list[Tensor]:
            sums = [torch.stack(list(each)).sum(dim=0) for each in terms]
            flat = torch.cat([one.reshape(-1).float() for one in sums])
            distributed.all_reduce(flat)
            parts = torch.split(flat, [one.numel() for one in sums])
            return [part.view_as(one).to(one.dtype) for part, one in zip(parts, sums, strict=True)]

        return self.begin(summed, where)


def documents(
    folder: str, network: dict[str, Any], training: dict[str, Any], processes: int, threads: int
) -> Steps:
    """Return the steps of any two documents, divided among processes.

    Args:
        folder: Folder of the data.
        network: The network document.
        training: The training document.
        processes: Number of processes.
        threads: Threads of each process.
    """
    job = {"folder": folder, "documents": [network, training], "threads": threads}
    return _divided(processes, {**job, "plain": False, "device": "cpu"})


def train(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    processes: int,
    threads: int,
    plain: bool = False,
    precision: str = "float32",
    device: str = "cpu",
) -> Steps:
    """Return the steps of a network whose shards are divided among processes.

    Args:
        folder: Folder of the data.
        hidden: Units of the hidden layers.
        softmax: Whether the output is a softmax.
        batch: Batch size.
        optimizer: Name of the optimizer.
        processes: Number of processes.
        threads: Threads of each process.
        plain: Use one shard per process, torch's own threads in each operation, and sums of floats.
        precision: Precision of the products.
        device: "cpu", or "cuda" for as many devices as processes.
    """
    job = {
        "folder": folder,
        "hidden": hidden,
        "softmax": softmax,
        "batch": batch,
        "optimizer": optimizer,
        "threads": threads,
        "plain": plain,
        "precision": precision,
        "device": device,
    }
    return _divided(processes, job)


def _divided(processes: int, job: dict[str, Any]) -> Steps:
    if processes == 1:
        return _own(_PlainExchange(1) if job["plain"] else Exchange(8, job["threads"]), 1, job)
    steps = in_step(_joined, processes, job)
    return lambda number: {**steps(number), "ranks": [*range(processes)]}


def _joined(store: str, rank: int, processes: int, job: dict[str, Any]) -> Steps:
    device, backend = torch.device("cpu"), "gloo"
    if job["device"] == "cuda":
        device, backend = torch.device("cuda", rank), "nccl"
        torch.cuda.set_device(device)
    distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=processes)
    kind = _PlainExchange if job["plain"] else Exchange
    num_shards, num_threads = (processes, 1) if job["plain"] else (8, job["threads"])
    return _own(kind(num_shards, num_threads, device, is_shared=True), processes, job)


def _own(exchange: Exchange, processes: int, job: dict[str, Any]) -> Steps:
    shards = processes if job["plain"] else 8
    torch.set_num_threads(job["threads"])
    threading = nullcontext if job["plain"] else one_thread_an_operation
    if "documents" in job:
        network, settings = job["documents"]
        training = TrainingSpec.of({**settings, "epochs": _EPOCHS})
        return steps_of(job["folder"], NetworkSpec.of(network), training, exchange, threading)
    training = TrainingSpec.of(
        {
            "epochs": _EPOCHS,
            "batch_size": job["batch"],
            "optimizer": job["optimizer"],
            "precision": job["precision"],
            "shards": shards,
        }
    )
    spec = document(job["hidden"], job["softmax"])
    return steps_of(job["folder"], spec, training, exchange, threading, job["device"])
