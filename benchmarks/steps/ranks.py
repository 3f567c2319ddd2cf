"""Steps of several processes: the first one is measured, and tells the others how many to make."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

Steps = Callable[[int], dict[str, Any]]
"""Makes a number of steps; returns facts about them."""

Own = Callable[[str, int, int, dict[str, Any]], Steps]
"""Joins the processes that meet at a file, as one rank of so many, and returns the steps of a job."""

_CONTEXT = multiprocessing.get_context("spawn")


def in_step(own: Own, processes: int, job: dict[str, Any]) -> Steps:
    """Return the steps of rank 0, which the other ranks make at the same time in processes of their own."""
    store, peers = str(Path(mkdtemp()) / "store"), []
    for rank in range(1, processes):
        here, there = _CONTEXT.Pipe()
        words = (own, there, store, rank, processes, job)
        _CONTEXT.Process(target=_follow, args=words, daemon=True).start()
        peers.append(here)
    first = own(store, 0, processes, job)

    def steps(number: int) -> dict[str, Any]:
        for peer in peers:
            peer.send(number)
        return first(number)

    return steps


def _follow(own: Own, leader: Connection, store: str, rank: int, processes: int, job: dict[str, Any]) -> None:
    steps = own(store, rank, processes, job)
    while True:
        steps(leader.recv())
