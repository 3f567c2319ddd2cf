"""Two real processes over gloo: the seconds of what each way to divide a network sends."""

import multiprocessing
import statistics
import time
from multiprocessing.queues import Queue
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

PROCESSES = 2


def seconds(shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> float:
    """Return the median seconds in which two processes add up a tensor of a shape.

    Raises:
        RuntimeError: The sum is wrong.
    """
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with TemporaryDirectory(prefix="widenet-lab-") as folder:
        store = Path(folder) / "store"
        others = [
            context.Process(target=_add_up, args=(rank, store, shape, dtype, rounds, answers))
            for rank in range(PROCESSES)
        ]
        for process in others:
            process.start()
        try:
            found: list[tuple[bool, float]] = [answers.get(timeout=120) for _ in others]
        finally:
            for process in others:
                process.join(10)
                process.kill()
    if not all(right for right, _ in found):
        raise RuntimeError("two processes added up a tensor wrongly.")
    return max(median for _, median in found)


def _add_up(
    rank: int,
    store: Path,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    rounds: int,
    answers: "Queue[tuple[bool, float]]",
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    taken = []
    for _ in range(rounds):
        numbers = torch.full(shape, rank + 1, dtype=dtype)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(numbers)
        taken.append(time.perf_counter() - begun)
    right = bool((numbers == sum(range(1, PROCESSES + 1))).all())
    answers.put((right, statistics.median(taken)))
    dist.destroy_process_group()
