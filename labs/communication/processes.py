"""Two real processes over gloo: the seconds and bytes of what they exchange in a step."""

import multiprocessing
import os
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor

from labs.communication.arithmetic import Exchange

PROCESSES = 2

_BYTES_SENT = 200
"""Place of `tcpi_bytes_sent` in Linux's `struct tcp_info`."""


@dataclass(frozen=True)
class Step:
    """The exchanges of a step in a process.

    Attributes:
        seconds: Median seconds of the rounds.
        sent_bytes: Bytes that left the process through its sockets in a round, the median.
        is_right: Whether it got what the others had.
    """

    seconds: float
    sent_bytes: float
    is_right: bool


def measured(steps: Sequence[Sequence[Exchange]], rounds: int) -> list[Step]:
    """Measure the exchanges of some steps between two processes, by the slower one.

    Raises:
        RuntimeError: A process got something else than what the others had.
    """
    spawn = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory(prefix="widenet-lab-") as folder,
        ProcessPoolExecutor(PROCESSES, mp_context=spawn) as pool,
    ):
        take_part = partial(_take_part, store=Path(folder) / "store", steps=steps, rounds=rounds)
        found = list(pool.map(take_part, range(PROCESSES)))
    if not all(step.is_right for of_process in found for step in of_process):
        raise RuntimeError("two processes exchanged a tensor wrongly.")
    return [max(of_processes, key=lambda step: step.seconds) for of_processes in zip(*found, strict=True)]


def _take_part(rank: int, store: Path, steps: Sequence[Sequence[Exchange]], rounds: int) -> list[Step]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    found = [_step(exchanges, rounds) for exchanges in steps]
    dist.destroy_process_group()
    return found


def _step(exchanges: Sequence[Exchange], rounds: int) -> Step:
    """Take part in the exchanges of a step, each of tensors full of rank + 1."""
    taken, sent, is_right = [], [], True
    for _ in range(rounds):
        tensors = [_tensors(each) for each in exchanges]
        dist.barrier()
        before, begun = _bytes_sent(), time.perf_counter()
        results = [_run(each, *own) for each, own in zip(exchanges, tensors, strict=True)]
        taken.append(time.perf_counter() - begun)
        dist.barrier()
        sent.append(_bytes_sent() - before)
        expected = sum(range(1, PROCESSES + 1))
        is_right &= all(bool((reduce(torch.add, parts) == expected).all()) for parts in results)
    return Step(statistics.median(taken), statistics.median(sent), is_right)


def _tensors(exchange: Exchange) -> tuple[Tensor, Tensor]:
    """Return what this process gives, and the place of what it gets; a sum replaces what it gives."""
    dtype = torch.float32 if exchange.bytes_each == 4 else torch.int64
    length = exchange.numbers // PROCESSES if exchange.kind == "gather" else exchange.numbers
    own = torch.full((length,), dist.get_rank() + 1, dtype=dtype)
    return own, torch.empty(0 if exchange.kind == "sum" else exchange.numbers, dtype=dtype)


def _run(exchange: Exchange, own: Tensor, arrived: Tensor) -> list[Tensor]:
    """Take part in an exchange; return parts that add up to what all processes have given."""
    match exchange.kind:
        case "sum":
            dist.all_reduce(own)
            return [own]
        case "gather":
            parts = [*arrived.chunk(PROCESSES)]
            dist.all_gather(parts, own)
            return parts
        case "scatter":  # gloo's own reduce-scatter sends twice as much, because it makes the whole sum
            dist.all_to_all_single(arrived, own)
            return [arrived.view(PROCESSES, -1).sum(dim=0)]


def _bytes_sent() -> int:
    """Return the bytes that this process has sent through its open sockets of TCP."""
    total = 0
    for place in Path("/proc/self/fd").iterdir():
        try:
            if not str(place.readlink()).startswith("socket:"):
                continue
            with closing(socket.socket(fileno=os.dup(int(place.name)))) as copy:
                facts = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT + 8)
        except OSError:  # closed meanwhile, or of another protocol
            continue
        total += struct.unpack_from("=Q", facts, _BYTES_SENT)[0]
    return total
