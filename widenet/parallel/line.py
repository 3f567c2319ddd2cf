"""The line of a process: the thread that takes part in collectives, one after another.

What waits for a lost process is released there.
"""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Pending(Future[T]):
    """A result of a line that is not there yet."""

    def __init__(self, line: "Line") -> None:
        super().__init__()
        self.line = line

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it; raise the line's error if it fails before."""
        if not self.done():
            wait((self, self.line.lost), timeout, FIRST_COMPLETED)  # type: ignore[misc]
            if not self.done():
                self.line.has_failed = True
                self.line.lost.result(timeout)
        try:
            return super().result(timeout)
        finally:
            del self  # the error's traceback would keep it


class Line:
    """Runs work in one daemon thread, in the order in which it was submitted.

    A collective whose partner has stopped blocks its thread for as long as torch allows; `fail` releases the
    callers that wait for its result. A daemon thread, unlike one of an executor, does not keep the process
    from ending.

    Attributes:
        lost: Gets the error of `fail`.
        has_failed: Whether a caller has got that error.
    """

    def __init__(self) -> None:
        self.lost: Future[None] = Future()
        self.has_failed = False
        self._queue: SimpleQueue[tuple[Pending[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="exchange", daemon=True).start()

    def submit(self, work: Callable[..., T], *arguments: object) -> Pending[T]:
        """Queue `work(*arguments)` and return its pending result."""
        pending: Pending[T] = Pending(self)
        self._queue.put((pending, partial(work, *arguments)))
        return pending

    def fail(self, error: Exception) -> None:
        """Fail all work that is queued or running, and all work submitted later, with an error."""
        with suppress(InvalidStateError):  # it has failed before
            self.lost.set_exception(error)

    def _serve(self) -> None:
        from widenet.devices import keep_to_one_thread  # the command line reads the defaults without torch

        keep_to_one_thread()
        while True:
            _do(*self._queue.get())


def _do(pending: Pending[T], work: Callable[[], T]) -> None:
    """Do some work and keep nothing of it: a thread that frees a tensor while Python ends aborts."""
    try:
        pending.set_result(work())
    except BaseException as error:
        pending.set_exception(error)
    del pending, work  # an error's traceback would keep them


@cache
def line() -> Line:
    """The line of this process: one for all its exchanges, whose collectives have one order."""
    return Line()
