"""Worker threads: how many, and one torch thread each, whatever the process had when they first worked."""

import os

import pytest
import torch

from widenet.errors import OptionError
from widenet.parallel.threads import Workers, available_threads, one_thread_an_operation


def test_a_worker_keeps_to_one_torch_thread_even_if_it_first_works_outside():
    workers = Workers(2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        workers.run(lambda shard: torch.full((1_000_000,), float(shard)), range(8))
        with one_thread_an_operation():
            assert set(workers.run(lambda _: torch.get_num_threads(), range(8))) == {1}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, 7),
        ({"LOCAL_WORLD_SIZE": "2"}, 3),
        ({"LOCAL_WORLD_SIZE": "8"}, 1),
        ({"WIDENET_THREADS": "5", "LOCAL_WORLD_SIZE": "2"}, 5),
        ({"WIDENET_THREADS": ""}, 7),
    ],
    ids=str,
)
def test_processes_of_one_machine_share_its_processors_unless_told_otherwise(environment, threads, monkeypatch):
    for name in ("WIDENET_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7))
    assert available_threads() == threads


@pytest.mark.parametrize("asked", ["0", "two", "-1", "1.5", "²"])
def test_what_is_no_number_of_threads_is_refused(asked, monkeypatch):
    monkeypatch.setenv("WIDENET_THREADS", asked)
    with pytest.raises(OptionError, match=f'WIDENET_THREADS must be a whole number of at least 1; got "{asked}"'):
        available_threads()
