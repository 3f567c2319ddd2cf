"""Threads of a pool that keep to one torch thread, so that bits are always the same."""

import torch


def keep_to_one_thread() -> None:
    """Let all torch operations of the calling thread use one thread; a pool calls this in each new thread.

    When a thread first asks for its number, torch sets it to the last number that any thread was given.
    Without the first line, the thread's first operation could so replace the one.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)
