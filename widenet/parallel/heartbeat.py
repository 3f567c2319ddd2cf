"""Heartbeats between the processes of a group, which show who has stopped answering.

The line of a process is the thread that takes part in collectives: what waits for a lost process is released
there.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from widenet.errors import GroupError

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

T = TypeVar("T")

TIMEOUT_SECONDS = 60.0
"""Default time without a heartbeat after which the others report a process as lost."""
JOIN_SECONDS = 600.0
"""Seconds for which the processes of a group wait for one that has not joined."""
STUCK_SECONDS = 10.0
"""Seconds after a loss for which a device may be busy before it counts as waiting for the lost process."""

_LOST_SHARE = 0.8
"""Share of the timeout after which a silent process is lost; in the rest the others learn of it."""
_BEATS, _LONGEST_PAUSE_SECONDS = 12, 5.0
"""Smallest number of heartbeats in a timeout, and the longest pause between two."""


class Line:
    """Runs work in one daemon thread, in the order in which it was submitted.

    A collective whose partner has stopped blocks its thread for as long as torch allows; `fail` releases the
    callers that wait for its result. A daemon thread, unlike one of an executor, does not keep the process
    from ending.

    Attributes:
        has_failed: Whether a caller has got the error of `fail`.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._open: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self.has_failed = False
        threading.Thread(target=self._serve, name="exchange", daemon=True).start()

    def submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue `work(*arguments)` and return its future."""
        future: Future[T] = Future()
        with self._lock:
            if self._error is None:
                self._open.add(future)
                self._queue.put((future, partial(work, *arguments)))
            else:
                self.has_failed = True
                future.set_exception(self._error)
        return future

    def fail(self, error: Exception) -> None:
        """Fail all work that is queued or running, and all work submitted later, with an error."""
        with self._lock:
            self._error = error
            self.has_failed = self.has_failed or bool(self._open)
            for future in self._open:
                with suppress(InvalidStateError):
                    future.set_exception(error)

    def _serve(self) -> None:
        from widenet.devices import keep_to_one_thread  # the command line reads the defaults without torch

        keep_to_one_thread()
        while True:
            self._do(*self._queue.get())

    def _do(self, future: Future[Any], work: Callable[[], Any]) -> None:
        """Do some work and keep nothing of it: a thread that frees a tensor while Python ends aborts."""
        settle: Callable[[], None]
        try:
            settle = partial(future.set_result, work())
        except BaseException as error:
            settle = partial(future.set_exception, error)
        with self._lock, suppress(InvalidStateError):
            self._open.discard(future)
            settle()
        del future, work, settle  # an error's traceback would keep them


@cache
def line() -> Line:
    """The line of this process: one for all its exchanges, whose collectives have one order."""
    return Line()


class Heartbeat:
    """Sends this process's heartbeat to the group and watches those of the others.

    One thread writes this process's heartbeat into the group's store and reads those of the others. It may
    block for as long as the network is cut, so another thread decides who is lost. Neither takes part in a
    collective. Both run while the main thread is busy in torch, in compiled code or in writing a file. So a
    slow process keeps beating, and a stopped or dead one does not.

    Attributes:
        beats: The latest heartbeat of each process: its number, the host, and whether the process has left
            the group properly; None before the first.
        answers: Number of the store's answers.
    """

    def __init__(
        self,
        store: "Store",
        rank: int,
        size: int,
        meeting: str,
        timeout: float,
        hosted: bool,
        is_busy: Callable[[], bool],
    ) -> None:
        """Prepare the threads; `start` starts them.

        Args:
            store: The group's store, on a connection of its own.
            rank: Rank of this process.
            size: Number of processes.
            meeting: Address of the store, for messages.
            timeout: Seconds without a heartbeat after which a process is reported as lost.
            hosted: Whether process 0 holds the store; then the store is lost with that process.
            is_busy: Whether a device is working for this process.
        """
        self.store, self.rank, self.size, self.meeting, self.hosted = store, rank, size, meeting, hosted
        self.timeout, self.is_busy, self.doing, self.host = timeout, is_busy, "start", socket.gethostname()
        self.lost: GroupError | None = None
        self.beats: list[tuple[int, str, bool] | None] = [None] * size
        self.answers, self._silent = 0, [0.0] * size
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=work, name="heartbeat", daemon=True) for work in (self._beat, self._watch)
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leave the group properly: the others no longer expect a heartbeat."""
        self._ended.set()
        self._threads[0].join(self._pause)

    def verdict(self) -> GroupError | None:
        """Return the error that names the lost process, or None if none is lost.

        A process that fails closes its connections, which may be noticed before its silence. So if a process
        has been silent for some time, this waits until it is certain which one was lost.
        """
        deadline = time.monotonic() + self.timeout
        while self.lost is None and time.monotonic() < deadline:
            if not any(
                beat is not None and silent > self._limit / 2
                for beat, silent in zip(self.beats, self._silent, strict=True)
            ):
                break
            time.sleep(self._pause / 4)
        return self.lost

    @property
    def _pause(self) -> float:
        return min(self.timeout / _BEATS, _LONGEST_PAUSE_SECONDS)

    @property
    def _limit(self) -> float:
        return self.timeout * _LOST_SHARE

    def _beat(self) -> None:
        number, ended = 0, False
        try:
            while not ended:
                ended, number = self._ended.wait(self._pause if number else 0), number + 1
                self._exchange(number, ended)
        except RuntimeError as error:
            # The store ends with the process that holds it. If the launcher held it, the launcher has also
            # ended its processes, which may still be saving.
            zero = self.beats[0]
            if self.hosted and self.rank != 0 and not (self._ended.is_set() or (zero and zero[2])):
                self._declare(self._named([0]), f"its connection ended: {str(error).splitlines()[0]}")
            self._ended.set()

    def _exchange(self, number: int, ended: bool) -> None:
        """Write this process's heartbeat, and read those of the others."""
        keys = [f"widenet/beat/{rank}" for rank in range(self.size)]
        self.store.set(keys[self.rank], json.dumps((number, self.host, ended)))
        known = [rank for rank, beat in enumerate(self.beats) if beat or self.store.check([keys[rank]])]
        for rank, text in zip(known, self.store.multi_get([keys[rank] for rank in known]), strict=True):
            self.beats[rank] = tuple(json.loads(text))
        self.answers += 1

    def _watch(self) -> None:
        """Count for how long each process has been silent; at the own rank, for how long the store has.

        A pause between two looks counts as two usual pauses at most. So a process that was stopped, or got no
        CPU time, does not report the others as lost when it continues.
        """
        before: list[object] = [None] * self.size
        then = time.monotonic()
        while self.lost is None and not self._ended.wait(self._pause):
            now = time.monotonic()
            passed, then = min(now - then, 2 * self._pause), now
            latest: list[object] = [*self.beats]
            latest[self.rank] = self.answers
            self._silent = [
                0.0 if sign != old or (beat and beat[2]) else silent + passed
                for sign, old, beat, silent in zip(latest, before, self.beats, self._silent, strict=True)
            ]
            before = latest
            self.check(self._silent)
        if self.lost is not None:
            self._end_if_stuck(self.lost)

    def _end_if_stuck(self, error: GroupError) -> None:
        """End this process with the message if its device waits for the lost process.

        On CUDA a collective runs on the device. No error can release the thread that waits for its result.
        """
        since = time.monotonic()
        while self.is_busy():
            if time.monotonic() - since > STUCK_SECONDS:
                sys.stderr.write(f"widenet: {error}\n")
                sys.stderr.flush()
                os._exit(GroupError.status)
            time.sleep(self._pause)

    def check(self, silent: list[float]) -> None:
        """Declare lost every process that has been silent for too long, or that has not joined in time.

        The silence of another process counts up to the store's latest answer only. If the store itself is
        silent, nothing is known of the others.
        """
        own = silent[self.rank]
        heard = [rank for rank, beat in enumerate(self.beats) if beat is not None]
        lost = [rank for rank in heard if silent[rank] - own > self._limit]
        missing = [rank for rank in range(self.size) if rank not in heard and silent[rank] > JOIN_SECONDS]
        if self.rank in heard and own > self._limit:
            if self.hosted and self.rank != 0:
                self._declare(self._named([0]), f"no sign of life for {own:.0f} seconds")
            else:
                # This process cannot reach the store, and so cannot know who is lost.
                self._declare(
                    f"{self._named([self.rank])}: its group",
                    f"{self.meeting} has not answered for {own:.0f} seconds",
                )
        elif lost:
            self._declare(self._named(lost), f"no sign of life for {silent[lost[0]]:.0f} seconds")
        elif missing:
            self._declare(self._named(missing), f"it did not join within {JOIN_SECONDS:.0f} seconds")

    def _named(self, ranks: list[int]) -> str:
        names = [(f"process {rank} of {self.size}", self.beats[rank]) for rank in ranks]
        return " and ".join(f"{name} (host {beat[1]})" if beat else name for name, beat in names)

    def _declare(self, who: str, cause: str) -> None:
        """Report a loss, with the step and layer at which this process waits; fail the work of its line."""
        verb = "were" if " and " in who else "was"
        self.lost = GroupError(f"{who} {verb} lost at {self.doing}: {cause}")
        line().fail(self.lost)
