"""How many threads work on shards, and torch's own threads kept out of the arithmetic."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def available_threads() -> int:
    """Processors that this process may use; WIDENET_THREADS overrides."""
    asked = os.environ.get("WIDENET_THREADS")
    return max(1, int(asked)) if asked and asked.isdigit() else len(os.sched_getaffinity(0))


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """Within, every torch operation runs in the thread that calls it, so that no result depends on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
