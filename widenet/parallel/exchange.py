"""The exchange between shards, wherever they are computed, and the threads that work on them.

Several processes send the integers that one process would add, and each thread has one torch thread. So the
results have the same bits for any number of processes and threads.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.nn.functional import pad

from widenet.devices import keep_to_one_thread
from widenet.errors import GroupError
from widenet.kernels.cuda_products import cuda_products
from widenet.kernels.fixed_point import Terms, common_peaks, exact_sum, fixed_sum, from_fixed, scales_for
from widenet.parallel.launch import line
from widenet.plan.layout import check_processes
from widenet.plan.tiles import held

T = TypeVar("T")


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """Within the block, torch operations use one thread, so no result depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def fixed_arithmetic() -> Iterator[None]:
    """Within the block, no result depends on the number of threads, or on torch's settings for CUDA."""
    with one_thread_an_operation(), cuda_products():
        yield


class Workers:
    """Runs work on shards or blocks in `num_threads` threads: the calling one and those of a pool."""

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def _own_pool(self) -> ThreadPoolExecutor:
        """Return the pool of this process: one that was forked has none of its parent's threads."""
        process = os.getpid()
        if process not in self._pools:
            self._pools[process] = ThreadPoolExecutor(
                self.num_threads - 1, thread_name_prefix="shard", initializer=keep_to_one_thread
            )
        return self._pools[process]

    def run(self, work: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """Return `work(number)` for every shard or block, in order.

        A single one runs in the calling thread. If one fails, no further ones are started, and the error of
        one of those that failed is raised. `work` must not call `run` of the same workers: it could wait for
        itself.
        """
        if self.num_threads < 2 or len(numbers) < 2:
            return [work(number) for number in numbers]
        with_gradients = torch.is_grad_enabled()
        # All threads share the iterator, so each number goes to one of them.
        remaining = iter(numbers)
        results: dict[int, T] = {}

        def serve() -> None:
            try:
                with torch.set_grad_enabled(with_gradients):
                    for number in remaining:
                        results[number] = work(number)
            finally:
                deque(remaining, maxlen=0)

        pool = self._own_pool()
        others = [pool.submit(serve) for _ in range(min(self.num_threads, len(numbers)) - 1)]
        try:
            with one_thread_an_operation():
                serve()
        finally:
            wait(others)
        for other in others:
            other.result()
        return [results[number] for number in numbers]


_CPU = torch.device("cpu")


class Exchange:
    """Runs work on the shards of this process and combines results across shards.

    No result depends on which process holds which shard, or on how many shards a process works on at a time.
    All processes must make the same calls in the same order. Methods that begin with `start` return at once,
    and the exchange continues in the background. If a process is lost, the error says what was being done
    (`at`) and for which layer (`where`, such as 'layer "taste"').

    The processes take the shards in order, each about equally many. A sum of [E, H] sends 8 x E x H bytes a
    process in an all-reduce, whatever the width. The line of the process runs all collectives in the order in
    which they were begun. This is the order of the program, so it is the same in every process.

    Attributes:
        shards: The shards of this process.
        num_threads: How many of them the process works on at a time.
        leads: Whether this process writes files and messages for its group.
    """

    def __init__(
        self,
        num_shards: int,
        num_threads: int = 1,
        device: torch.device = _CPU,
        is_shared: bool = False,
    ) -> None:
        """Take this process's shards.

        Args:
            num_shards: Shards of every wide layer, over all processes.
            num_threads: How many shards the process works on at a time.
            device: This process's device.
            is_shared: Whether the processes of the default group, which each must have joined, share the
                shards; otherwise this process holds all.

        Raises:
            OptionError: There are fewer shards than processes.
        """
        self.rank, self.size = 0, 1
        if is_shared:
            self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
            check_processes(num_shards, self.size)
        self.leads = self.rank == 0
        self.num_shards, self.device = num_shards, device
        self.held = [held(num_shards, process, self.size) for process in range(self.size)]
        self.shards = self.held[self.rank]
        self.num_threads, self.workers = num_threads, Workers(num_threads)
        # On CUDA all threads share a stream: the line's work follows what computed its terms, and precedes
        # what uses its results.
        if self.size > 1 and device.type == "cuda":
            line().submit(torch.cuda.set_device, device)
        self.place = "start"
        self.lost: GroupError | None = None

    def each(self, work: Callable[[int], T]) -> list[T]:
        """Return `work(shard)` for every shard of this process, in order; shards may run in parallel."""
        return self.workers.run(work, self.shards)

    def at(self, place: str) -> None:
        """Note what is done from now on, for messages: "epoch 2, step 17"."""
        self.place = place
        if self.size > 1:
            line().doing = place

    def begin(self, work: Callable[[], T], where: str) -> Callable[[], T]:
        """Queue some work with collectives on the line; what is returned waits for its result."""
        return line().submit(self._on_line, work, f"{self.place}, {where}")

    def start_sum(self, *terms: Terms, where: str) -> Callable[[], list[Tensor]]:
        """Start several sums at once; see `sum`. The terms must not change before the result is there."""
        if self.size == 1:
            totals = [exact_sum(of_shards) for of_shards in terms]
            return lambda: totals

        def summed() -> list[Tensor]:
            num = self.num_shards
            peaks = _reduced([common_peaks(of_shards) for of_shards in terms], distributed.ReduceOp.MAX)
            own = [fixed_sum(of_shards, peak, num) for of_shards, peak in zip(terms, peaks, strict=True)]
            totals = _reduced(own, distributed.ReduceOp.SUM)
            dtypes = [of_shards[0].dtype for of_shards in terms]
            return [
                from_fixed(total, scales_for(peak, num), peak, dtype)
                for total, peak, dtype in zip(totals, peaks, dtypes, strict=True)
            ]

        return self.begin(summed, where)

    def sum(self, terms: Terms, where: str) -> Tensor:
        """Return the sum over all shards of one tensor per shard, exact in 64-bit fixed point."""
        return self.start_sum(terms, where=where)()[0]

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """Return the tensors of all shards, one per shard and of equal shape, in order."""
        if self.size == 1:
            return list(terms)

        def gathered() -> list[Tensor]:
            own, most = torch.stack([*terms]), len(self.held[0])
            padded = pad(own, (*[0] * (2 * own.dim() - 1), most - len(own)))  # to equal shapes
            of_processes = [torch.empty_like(padded) for _ in self.held]
            distributed.all_gather(of_processes, padded)
            rows_of = zip(of_processes, self.held, strict=True)
            return [term for rows, shards in rows_of for term in rows[: len(shards)]]

        return self.begin(gathered, where)()

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Callable[[], list[bool]]:
        """Ask each question in all processes; an answer is true if it is true in any of them.

        With several processes the questions are asked at once, otherwise by the function that is returned.
        It waits for the answers.
        """
        if self.size == 1:
            return lambda: [ask() for ask in questions]
        own = torch.tensor([int(ask()) for ask in questions], device=self.device)
        return self.begin(
            lambda: [bool(answer) for answer in _reduced([own], distributed.ReduceOp.MAX)[0].tolist()], where
        )

    def collect(self, value: Any, where: str) -> list[Any]:
        """Return a small plain value of every process, in order; waits for all processes."""
        if self.size == 1:
            return [value]

        def collected() -> list[Any]:
            values: list[Any] = [None] * self.size
            distributed.all_gather_object(values, value)
            return values

        return self.begin(collected, where)()

    def _on_line(self, work: Callable[[], T], where: str) -> T:
        """Run work with collectives; a failure becomes a GroupError, which all later work raises too."""
        if self.lost is not None:
            raise self.lost
        line().doing, heartbeat = where, line().heartbeat
        try:
            with torch.no_grad():
                return work()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.lost = None if heartbeat is None else heartbeat.verdict()
            if self.lost is None:
                reason = str(error).strip().split("\n")[0]
                rule = f"another process of the group was lost, or did not answer in time ({reason})"
                self.lost = GroupError(rule, place=f"process {self.rank} of {self.size}, {where}")
            raise self.lost from error


def _reduced(tensors: Sequence[Tensor], operation: distributed.ReduceOp.RedOpType) -> list[Tensor]:
    """All-reduce tensors of one dtype in one collective."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    distributed.all_reduce(flat, operation)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
