"""A thread that runs collectives in order, and whose waiting callers can be released if a process is lost."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Queue = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class Line:
    """Runs work in one daemon thread, in the order in which it was submitted.

    A collective whose partner has stopped blocks its thread for as long as torch allows; `fail` releases the
    callers that wait for its result. A daemon thread, unlike one of an executor, does not keep the process
    from ending.

    Attributes:
        has_failed: Whether a caller has got the error of `fail`.
    """

    def __init__(self, prepare: Callable[[], object] = lambda: None) -> None:
        self._queue: _Queue = SimpleQueue()
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self.has_failed = False
        self.thread = threading.Thread(
            target=_serve, args=(self._queue, prepare), name="exchange", daemon=True
        )
        self.thread.start()
        weakref.finalize(self, self._queue.put, None)

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue `work(*arguments)` and return its future."""
        future: Future[T] = Future()
        with self._lock:
            if self._error is not None:
                self.has_failed = True
                future.set_exception(self._error)
                return future
            self._open.add(future)
        future.add_done_callback(self._forget)
        self._queue.put((future, partial(work, *arguments)))
        return future

    def fail(self, error: Exception) -> None:
        """Fail all work that is queued or running, and all work submitted later, with an error."""
        with self._lock:
            self._error = error
            waiting = list(self._open)
            self.has_failed = self.has_failed or bool(waiting)
        for future in waiting:
            with suppress(InvalidStateError):
                future.set_exception(error)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)


def _serve(queue: _Queue, prepare: Callable[[], object]) -> None:
    prepare()
    while (item := queue.get()) is not None:
        _do(*item)
        del item


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    """Do some work and keep nothing of it: a thread that frees a tensor while Python ends aborts."""
    try:
        result = work()
    except BaseException as error:
        with suppress(InvalidStateError):
            future.set_exception(error)
    else:
        with suppress(InvalidStateError):
            future.set_result(result)
    finally:
        del future, work  # an error's traceback would keep them
