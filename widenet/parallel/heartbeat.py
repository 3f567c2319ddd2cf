"""Heartbeats between the processes of a group: they show which process has stopped answering."""

import json
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from widenet.errors import GroupError
from widenet.parallel.line import Line

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

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
_REMEDY = "Start again; resume a training with `resume=True`."


class Beat(NamedTuple):
    """A heartbeat.

    Attributes:
        number: Counts the heartbeats of a process.
        host: Name of its machine.
        ended: Whether the process has left the group properly.
    """

    number: int
    host: str
    ended: bool = False


class Roll:
    """When each other process was last heard, on a clock that stops while this process is stopped."""

    def __init__(self, rank: int, size: int, pause: float) -> None:
        self.rank, self.size, self.pause = rank, size, pause
        self.beats: list[Beat | None] = [None] * size
        self.answers = 0
        self._seen: dict[int, tuple[object, float]] = {}
        self._clock = 0.0
        self._now: float | None = None

    def look(self, now: float) -> dict[int, float]:
        """Return the seconds since each other process was heard; at the own rank, since the store answered.

        A pause between two calls counts as two usual pauses at most. So a process that was stopped, or got no
        CPU time, does not report the others as lost when it continues.
        """
        self._clock += 0.0 if self._now is None else min(now - self._now, 2 * self.pause)
        self._now = now
        silent = {}
        for rank in range(self.size):
            beat = self.beats[rank]
            latest: object = self.answers if rank == self.rank else beat
            before, since = self._seen.get(rank, (None, 0.0))
            if latest != before or (beat is not None and beat.ended):
                before, since = latest, self._clock
            self._seen[rank] = (before, since)
            silent[rank] = self._clock - since
        return silent


class Heartbeat:
    """Sends this process's heartbeat to the group and watches those of the others.

    One thread writes this process's heartbeat into the group's store and reads those of the others. It may
    block for as long as the network is cut, so another thread decides who is lost. Neither takes part in a
    collective. Both run while the main thread is busy in torch, in compiled code or in writing a file. So a
    slow process keeps beating, and a stopped or dead one does not.
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
        self.is_busy = is_busy
        self.store, self.rank, self.size, self.meeting, self.hosted = store, rank, size, meeting, hosted
        self.timeout, self.doing, self.host = timeout, "start", socket.gethostname()
        self.lost: GroupError | None = None
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._failed: list[Line] = []
        self._ended = threading.Event()
        self._checked = threading.Condition()
        self._roll = Roll(rank, size, self._pause)
        self._silent: dict[int, float] = {}
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

    def drain(self) -> None:
        """Wait until the lines have finished all submitted work."""
        for line in list(self._lines):
            with suppress(Exception):
                line.submit(bool).result()

    def guard(self, line: Line) -> None:
        """When a process is lost, fail all work of this line with an error that names it."""
        with self._checked:
            self._lines.add(line)
        if self.lost is not None:
            self._fail([line], self.lost)

    def has_failed(self) -> bool:
        """Whether a lost process made work of this one fail; False if this one was done with the group."""
        return any(line.has_failed for line in self._failed)

    def verdict(self) -> GroupError | None:
        """Return the error that names the lost process, or None if none is lost.

        A process that fails closes its connections, which may be noticed before its silence. So if a process
        has been silent for some time, this waits until it is certain which one was lost.
        """
        with self._checked:
            self._checked.wait_for(
                lambda: self.lost is not None or not self._is_suspicious(), timeout=self.timeout
            )
            return self.lost

    def _is_suspicious(self) -> bool:
        return any(
            seconds > self._limit / 2
            for rank, seconds in self._silent.items()
            if self._roll.beats[rank] is not None
        )

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
                ended = self._ended.wait(self._pause if number else 0)
                number += 1
                self._exchange(Beat(number, self.host, ended))
        except RuntimeError as error:
            self._store_lost(error)

    def _exchange(self, beat: Beat) -> None:
        """Write this process's heartbeat, and read those of the others."""
        self.store.set(_key(self.rank), json.dumps(beat))
        others = [rank for rank in range(self.size) if rank != self.rank]
        known = [
            rank for rank in others if self._roll.beats[rank] is not None or self.store.check([_key(rank)])
        ]
        texts = self.store.multi_get([_key(rank) for rank in known]) if known else []
        for rank, text in zip(known, texts, strict=True):
            self._roll.beats[rank] = Beat(*json.loads(text))
        self._roll.beats[self.rank] = beat
        self._roll.answers += 1

    def _store_lost(self, error: RuntimeError) -> None:
        """Handle the loss of the store, which ends with the process that holds it.

        If process 0 held it, that process is lost. If the launcher held it, the launcher has also ended its
        processes, which may still be saving.
        """
        if self._ended.is_set():
            return
        zero = self._roll.beats[0]
        if self.hosted and self.rank != 0 and (zero is None or not zero.ended):
            self._declare(self._loss([0], f"its connection ended: {str(error).splitlines()[0]}"))
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._pause):
            self._roll.pause = self._pause
            silent = self._roll.look(time.monotonic())
            self._check(silent)
            with self._checked:
                self._silent = silent
                self._checked.notify_all()
            if self.lost is not None:
                break
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

    def _check(self, silent: dict[int, float]) -> None:
        """Declare lost every process that has been silent for too long, or that has not joined in time.

        The silence of another process counts up to the store's latest answer only. If the store itself is
        silent, nothing is known of the others.
        """
        heard = [rank for rank in range(self.size) if self._roll.beats[rank] is not None]
        lost = [rank for rank in heard if silent[rank] - silent[self.rank] > self._limit]
        missing = [rank for rank in range(self.size) if rank not in heard and silent[rank] > JOIN_SECONDS]
        if self.rank in heard and silent[self.rank] > self._limit:
            seconds, on_zero = silent[self.rank], self.hosted and self.rank != 0
            self._declare(self._loss([0], self._cause(seconds)) if on_zero else self._cut_off(seconds))
        elif lost:
            self._declare(self._loss(lost, self._cause(silent[lost[0]])))
        elif missing:
            self._declare(
                f"process {missing[0]} of {self.size} did not join the group within {JOIN_SECONDS:.0f}"
                " seconds"
            )

    def _cause(self, seconds: float) -> str:
        reasons = "It was stopped, its machine is down, or the network is cut"
        return f"no sign of life for {seconds:.0f} seconds. {reasons}"

    def _loss(self, ranks: list[int], cause: str) -> str:
        """Which processes were lost, and the step and layer at which this process waits for them."""
        beats = [(rank, self._roll.beats[rank]) for rank in ranks]
        listed = [
            f"process {rank} of {self.size} (host {beat.host})" for rank, beat in beats if beat is not None
        ]
        names = " and ".join(listed) or f"process {ranks[0]} of {self.size}"
        return f"{names} {'was' if len(ranks) == 1 else 'were'} lost at {self.doing}: {cause}"

    def _cut_off(self, seconds: float) -> str:
        """The message of a process that cannot reach the store, and so cannot know who is lost."""
        own = f"process {self.rank} of {self.size} (host {self.host})"
        reasons = f"The network is cut, or the launcher at {self.meeting} is stopped or down"
        return (
            f"{own} lost its group at {self.doing}: {self.meeting} has not answered for {seconds:.0f}"
            f" seconds. {reasons}"
        )

    def _declare(self, sentence: str) -> None:
        with self._checked:
            self.lost = GroupError(f"{sentence}. {_REMEDY}")
            lines = list(self._lines)
            self._checked.notify_all()
        self._fail(lines, self.lost)

    def _fail(self, lines: list[Line], error: GroupError) -> None:
        """Fail all work of some lines, and keep the lines: they know whether anyone waited for it."""
        self._failed += lines
        for line in lines:
            line.fail(error)


def _key(rank: int) -> str:
    return f"widenet/beat/{rank}"
