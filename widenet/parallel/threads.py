"""Threads that work on shards or blocks, each with one torch thread, so that bits are always the same."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

from widenet.devices import keep_to_one_thread
from widenet.kernels.cuda_products import cuda_products

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
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def _own_pool(self) -> ThreadPoolExecutor:
        """Return the pool of this process: one that was forked has none of its parent's threads."""
        if self._pool is None or self._process != os.getpid():
            self._process = os.getpid()
            self._pool = ThreadPoolExecutor(
                self.num_threads - 1, thread_name_prefix="shard", initializer=keep_to_one_thread
            )
        return self._pool

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
