"""Signs of life that the processes of a group exchange: which of them has stopped answering."""

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
"""How long a process may go without a sign of life before the others report it, if nobody says otherwise."""
JOIN_SECONDS = 600.0
"""How long the processes of a group wait for one that has not come yet."""
STUCK_SECONDS = 10.0
"""How long a device may stay busy after a loss before it is taken to wait for the lost process."""

_SILENCE = 0.8
"""Share of the timeout after which a silent process is lost; the rest is for the news to reach everybody."""
_BEATS, _LONGEST_PAUSE_SECONDS = 12, 5.0
"""Signs of life in a timeout, at least, and the longest pause between two."""
_REMEDY = "Start again; a training goes on with --resume."


class Beat(NamedTuple):
    """A sign of life.

    `number` tells it from the one before; `ended` says that the process has left the group in good order.
    """

    number: int
    host: str
    ended: bool = False


class Roll:
    """When each other process was last heard, on a clock that stands still while this process is itself
    stopped.
    """

    def __init__(self, rank: int, size: int, pause: float) -> None:
        self.rank, self.size, self.pause = rank, size, pause
        self.beats: list[Beat | None] = [None] * size
        self.answers = 0
        self._seen: dict[int, tuple[object, float]] = {}
        self._clock = 0.0
        self._now: float | None = None

    def look(self, now: float) -> dict[int, float]:
        """Seconds for which each other process, and the store (at this process's own rank), has been silent.

        A pause between two looks counts as two usual ones at most. So a process that was stopped, or had no
        processor, does not take the others for lost when it continues.
        """
        self._clock += 0.0 if self._now is None else min(now - self._now, 2 * self.pause)
        self._now = now
        silent = {}
        for rank in range(self.size):
            beat = self.beats[rank]
            sign: object = self.answers if rank == self.rank else beat
            before, since = self._seen.get(rank, (None, 0.0))
            if sign != before or (beat is not None and beat.ended):
                before, since = sign, self._clock
            self._seen[rank] = (before, since)
            silent[rank] = self._clock - since
        return silent


class Heartbeat:
    """Tells the other processes of a group that this one lives, and watches them.

    One thread writes this process's sign of life into the group's store and reads those of the others. That
    may block for as long as a network is cut, so that another thread judges. Neither takes part in a
    collective. They run while the main thread is busy in torch, in compiled code or in writing a file. So a
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
        """meeting: where the store is, for a person. hosted: process 0 holds the store, so that it is lost
        with that process.

        is_busy: whether a device is at work for this process.
        """
        self.is_busy = is_busy
        self.store, self.rank, self.size, self.meeting, self.hosted = store, rank, size, meeting, hosted
        self.timeout, self.doing, self.host = timeout, "start", socket.gethostname()
        self.lost: GroupError | None = None
        self._lines: weakref.WeakSet[Line] = weakref.WeakSet()
        self._failed: list[Line] = []
        self._ended = threading.Event()
        self._judged = threading.Condition()
        self._roll = Roll(rank, size, self._pause)
        self._silent: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=work, name="heartbeat", daemon=True) for work in (self._beat, self._watch)
        ]

    def start(self) -> None:
        """Begin to beat and to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Leave in good order: the others no longer expect a sign of life."""
        self._ended.set()
        self._threads[0].join(self._pause)

    def drain(self) -> None:
        """Wait until the lines have done what was submitted to them."""
        for line in list(self._lines):
            with suppress(Exception):
                line.submit(bool).result()

    def guard(self, line: Line) -> None:
        """End what a line does, with an error that names the lost process, when one is lost."""
        with self._judged:
            self._lines.add(line)
        if self.lost is not None:
            self._fail([line], self.lost)

    def has_failed(self) -> bool:
        """Whether work of this process has failed by the loss of another, which does not matter to one
        that was done with the group.
        """
        return any(line.has_failed for line in self._failed)

    def verdict(self) -> GroupError | None:
        """The error that names the lost process, if one is lost.

        A process that fails before this one has judged closes its connections. So where somebody is silent
        already, wait until it is certain who was lost.
        """
        with self._judged:
            self._judged.wait_for(
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
        return self.timeout * _SILENCE

    def _beat(self) -> None:
        number, ended = 0, False
        try:
            while not ended:
                ended = self._ended.wait(self._pause if number else 0)
                number += 1
                self._call(Beat(number, self.host, ended))
        except RuntimeError as error:
            self._without_store(error)

    def _call(self, beat: Beat) -> None:
        """Write this process's sign of life, read those of the others."""
        self.store.set(_key(self.rank), json.dumps(beat))
        others = [rank for rank in range(self.size) if rank != self.rank]
        there = [
            rank for rank in others if self._roll.beats[rank] is not None or self.store.check([_key(rank)])
        ]
        for rank, found in zip(
            there, self.store.multi_get([_key(rank) for rank in there]) if there else [], strict=True
        ):
            self._roll.beats[rank] = Beat(*json.loads(found))
        self._roll.beats[self.rank] = beat
        self._roll.answers += 1

    def _without_store(self, error: RuntimeError) -> None:
        """The store is gone, with whoever held it.

        A launcher that ends has its processes end too, and they may still save. A process that held the store
        is lost.
        """
        if self._ended.is_set():
            return
        zero = self._roll.beats[0]
        if self.hosted and self.rank != 0 and (zero is None or not zero.ended):
            self._declare(self._named([0], f"its connection ended: {str(error).splitlines()[0]}"))
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._pause):
            self._roll.pause = self._pause
            silent = self._roll.look(time.monotonic())
            self._judge(silent)
            with self._judged:
                self._silent = silent
                self._judged.notify_all()
            if self.lost is not None:
                break
        if self.lost is not None:
            self._end_if_stuck(self.lost)

    def _end_if_stuck(self, error: GroupError) -> None:
        """End this process, with the message, if it waits for a device that waits for the lost process.

        On CUDA a collective is work of the device. No error can release the thread that waits for its result.
        """
        since = time.monotonic()
        while self.is_busy():
            if time.monotonic() - since > STUCK_SECONDS:
                sys.stderr.write(f"widenet: {error}\n")
                sys.stderr.flush()
                os._exit(GroupError.status)
            time.sleep(self._pause)

    def _judge(self, silent: dict[int, float]) -> None:
        """Declare who is lost, if somebody is."""
        heard = [rank for rank in range(self.size) if self._roll.beats[rank] is not None]
        lost = [rank for rank in heard if rank != self.rank and silent[rank] > self._limit]
        missing = [rank for rank in range(self.size) if rank not in heard and silent[rank] > JOIN_SECONDS]
        if self.rank in heard and silent[self.rank] > self._limit:
            on_zero = self.hosted and self.rank != 0
            self._declare(
                self._named([0], self._cause(silent[self.rank])) if on_zero else self._cut(silent[self.rank])
            )
        elif lost:
            self._declare(self._named(lost, self._cause(silent[lost[0]])))
        elif missing:
            self._declare(
                f"process {missing[0]} of {self.size} did not join the group within {JOIN_SECONDS:.0f}"
                " seconds"
            )

    def _cause(self, seconds: float) -> str:
        reasons = "It was stopped, its machine is down, or the network is cut"
        return f"no sign of life for {seconds:.0f} seconds. {reasons}"

    def _named(self, ranks: list[int], cause: str) -> str:
        """Who was lost, and at which step and layer this process missed it, which is where it waits."""
        beats = [(rank, self._roll.beats[rank]) for rank in ranks]
        each = [
            f"process {rank} of {self.size} (host {beat.host})" for rank, beat in beats if beat is not None
        ]
        names = " and ".join(each) or f"process {ranks[0]} of {self.size}"
        return f"{names} {'was' if len(ranks) == 1 else 'were'} lost at {self.doing}: {cause}"

    def _cut(self, seconds: float) -> str:
        """What a process says that is cut off from the store, and so from all others it cannot tell who
        lives.
        """
        own = f"process {self.rank} of {self.size} (host {self.host})"
        reasons = f"The network is cut, or the launcher at {self.meeting} is stopped or down"
        return (
            f"{own} lost its group at {self.doing}: {self.meeting} has not answered for {seconds:.0f}"
            f" seconds. {reasons}"
        )

    def _declare(self, sentence: str) -> None:
        with self._judged:
            self.lost = GroupError(f"{sentence}. {_REMEDY}")
            lines = list(self._lines)
            self._judged.notify_all()
        self._fail(lines, self.lost)

    def _fail(self, lines: list[Line], error: GroupError) -> None:
        """End what some lines do, and keep them: they know whether that has mattered to somebody."""
        self._failed += lines
        for line in lines:
            line.fail(error)


def _key(rank: int) -> str:
    return f"widenet/beat/{rank}"
