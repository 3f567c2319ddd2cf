"""A thread that keeps to one torch thread does so whatever other threads are given, and whenever."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from widenet.one_thread import keep_to_one_thread


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_number_given_to_another_thread_is_not_taken_at_the_first_operation():
    with ThreadPoolExecutor(1, initializer=keep_to_one_thread) as pool:
        pool.submit(int).result()
        torch.set_num_threads(2)
        assert pool.submit(torch.get_num_threads).result() == 1
        assert torch.get_num_threads() == 2
