"""Worker threads have one torch thread each, whatever the process had when they first worked; none is left
alone with a failure.
"""

import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from threading import Barrier, current_thread, main_thread

import pytest
import torch

from widenet.parallel.exchange import Workers, one_thread_an_operation


def test_a_worker_keeps_to_one_torch_thread_even_if_it_first_works_outside():
    workers = Workers(2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert set(workers.run(lambda _: torch.get_num_threads(), range(8))) == {1}
        assert torch.get_num_threads() == 2
        with one_thread_an_operation():
            assert set(workers.run(lambda _: torch.get_num_threads(), range(8))) == {1}
    finally:
        torch.set_num_threads(before)


def plus_one(number):
    return number + 1


def add_in_threads(numbers):
    return SHARED.run(plus_one, numbers)


SHARED = Workers(3)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    assert add_in_threads([1, 2, 3]) == [2, 3, 4]
    with ProcessPoolExecutor(1, get_context("fork"), signal.alarm, [60]) as pool:
        assert pool.submit(add_in_threads, [4, 5, 6]).result() == [5, 6, 7]


@pytest.mark.parametrize("with_gradients", [True, False])
def test_a_failure_is_told_when_others_are_done_which_record_gradients_as_the_caller_does(with_gradients):
    both_at_work, done = Barrier(2), []

    def work(_):
        both_at_work.wait()
        if current_thread() is main_thread():
            raise ValueError("of the calling thread")
        time.sleep(0.2)
        done.append(torch.is_grad_enabled())

    with torch.set_grad_enabled(with_gradients), pytest.raises(ValueError, match="calling"):
        Workers(2).run(work, range(2))
    assert done == [with_gradients]
