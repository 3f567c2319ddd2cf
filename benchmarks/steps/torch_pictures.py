"""PyTorch's AlexNet on one device, eager, in one process or in several under DistributedDataParallel."""

from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.steps.ranks import Steps, in_step


def alexnet(classes: int) -> nn.Sequential:
    """Return the layers of examples/alexnet."""
    return nn.Sequential(
        *(nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(256, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten()),
        *(nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(4096, classes),
    )


def train(folder: str, batch: int, classes: int, processes: int, threads: int, parallel: bool) -> Steps:
    """Return training steps; each process takes its share of a batch.

    Args:
        folder: Folder of the pictures.
        batch: Batch size of all processes together.
        classes: Number of classes.
        processes: Number of processes.
        threads: Threads of each process.
        parallel: Use DistributedDataParallel over gloo, also with one process.
    """
    job = {"folder": folder, "batch": batch, "classes": classes, "threads": threads, "parallel": parallel}
    return in_step(_own, processes, job)


def _own(store: str, rank: int, processes: int, job: dict[str, Any]) -> Steps:
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    layers = alexnet(job["classes"])
    model: nn.Module = layers
    if job["parallel"]:
        method = f"file://{store}"
        distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=processes)
        model = DistributedDataParallel(layers)
    chosen = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005, fused=True)
    pixels = np.load(f"{job['folder']}/pixels.npy", mmap_mode="r")
    labels = torch.from_numpy(np.load(f"{job['folder']}/labels.npy"))
    share, done = job["batch"] // processes, 0

    def steps(number: int) -> dict[str, Any]:
        nonlocal done
        loss = 0.0
        for _ in range(number):
            first = (done * job["batch"] + rank * share) % len(labels)
            shown = torch.from_numpy(pixels[first : first + share].copy()).view(share, 3, 227, 227)
            chosen.zero_grad()
            value = functional.cross_entropy(model(shown), labels[first : first + share])
            torch.autograd.backward(value)
            chosen.step()
            loss, done = value.item(), done + 1
        return {"loss": loss, "weight_bytes": 4 * sum(weight.numel() for weight in layers.parameters())}

    return steps
