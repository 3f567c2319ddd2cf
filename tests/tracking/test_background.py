"""Calls in a thread of their own."""

import threading

import pytest

from widenet.tracking.follow import Background


def test_calls_are_made_in_order_and_a_failure_stops_none_of_them():
    background, made = Background(), []

    def fail():
        raise ValueError("no")

    first, failed, last = (
        background.submit(lambda: made.append(1)),
        background.submit(fail),
        background.submit(lambda: [*made, threading.current_thread().daemon]),
    )
    assert last.result(60) == [1, True]
    assert first.result() is None
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_nobody_waits_for_a_call_that_hangs():
    background, go_on = Background(), threading.Event()
    background.submit(go_on.wait)
    with pytest.raises(TimeoutError):
        background.submit(lambda: 1).result(0)
    go_on.set()
