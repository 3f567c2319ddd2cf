"""Work beside the model's: one thread for each kind, and a bound on what may wait for it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from widenet.serve.messages import RefusedError

_T = TypeVar("_T")


class WorkThread:
    """Does work for an event loop, one piece after the other.

    Args:
        name: Name of the thread.
        room: How many pieces may be waited for at a time.
    """

    def __init__(self, name: str, room: int) -> None:
        self._room, self._is_ending = room, False
        self._awaited: set[asyncio.Future[Any]] = set()
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        # The end of the process does not wait for it.
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def end(self) -> None:
        """Refuse all that is waited for and all that comes; the event loop calls it."""
        self._is_ending = True
        for future in self._awaited:
            if not future.done():
                future.set_exception(_ending())

    async def do(self, work: Callable[[], _T], seconds: float | None = None) -> _T:
        """Return what the work gives; nobody begins it after `seconds`.

        Raises:
            RefusedError: There is no room, the time is over, or the service ends.
        """
        if self._is_ending:
            raise _ending()
        if len(self._awaited) >= self._room:
            raise RefusedError(
                503, "busy", "too many requests of this kind wait. Try again later.", {"Retry-After": "1"}
            )
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)
        self._queue.put((work, future))
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise RefusedError(504, "too_late", "there was no time before the deadline.") from None
        finally:
            self._awaited.remove(future)

    def _run(self) -> None:
        while True:
            work, future = self._queue.get()
            if future.done():  # nobody waits any more
                continue
            result, failure = None, None
            try:
                result = work()
            except Exception as error:
                failure = error
            with suppress(RuntimeError):  # the event loop has ended
                future.get_loop().call_soon_threadsafe(_deliver, future, result, failure)


def _deliver(future: "asyncio.Future[Any]", result: object, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


def _ending() -> RefusedError:
    return RefusedError(503, "ending", "the service ends.", {"Retry-After": "1"})
