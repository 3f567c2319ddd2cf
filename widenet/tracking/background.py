"""Calls of a slow service in a thread of their own, so that nobody waits long for them."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """One daemon thread that makes calls in the order in which they come.

    The process does not wait for the thread when it ends.
    """

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tracker", daemon=True).start()

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Make a call after those before it; return its result to come."""
        result: Future[T] = Future()
        self.calls.put((call, result))
        return result

    def _run(self) -> None:
        while True:
            call, result = self.calls.get()
            try:
                result.set_result(call())
            except Exception as error:
                result.set_exception(error)
