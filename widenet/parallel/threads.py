"""Threads that work on shards, and torch's own threads kept out of the arithmetic."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

T = TypeVar("T")


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """Within, every torch operation runs in the thread that calls it, so that no result depends on the
    number of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers:
    """Runs work on shards or blocks, each in one thread, `num_threads` at a time: the calling one and those
    of a pool.

    A thread keeps the number of torch threads that it had at its first operation, whatever others set later;
    so each of the pool begins with one.
    """

    def __init__(self, num_threads: int) -> None:
        single = partial(torch.set_num_threads, 1)
        self.num_threads = num_threads
        self.pool = (
            ThreadPoolExecutor(num_threads - 1, thread_name_prefix="shard", initializer=single)
            if num_threads > 1
            else None
        )

    def run(self, work: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """`work(number)` for every shard or block, in the order given; a single one in the calling thread.

        Where some fail, those that others have begun are still done, and what the first of them in order
        raised is raised, whatever the threads did meanwhile. `work` must not call `run` of the same workers:
        it could wait for itself.
        """
        if self.pool is None or len(numbers) < 2:
            return [work(number) for number in numbers]
        with_gradients, left, found, failed = (
            torch.is_grad_enabled(),
            iter(numbers),
            dict[int, T](),
            dict[int, Exception](),
        )

        def some() -> None:
            with torch.set_grad_enabled(with_gradients):
                try:
                    for number in left:  # a range's iterator, of which each number goes to one thread
                        try:
                            found[number] = work(number)
                        except Exception as error:
                            failed[number] = error
                            break
                finally:
                    deque(left, maxlen=0)

        others = [self.pool.submit(some) for _ in range(min(self.num_threads, len(numbers)) - 1)]
        try:
            with one_thread_an_operation():
                some()
        finally:
            wait(others)
        for other in others:
            other.result()
        for number in numbers:
            if number in failed:
                raise failed[number]
        return [found[number] for number in numbers]
