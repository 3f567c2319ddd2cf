"""Heartbeats between the processes of a group, which show who has stopped answering."""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from widenet.errors import GroupError
from widenet.parallel.line import line

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


class Heartbeat:
    """Sends this process's heartbeat to the group and watches those of the others.

    One thread writes this process's heartbeat into the group's store and reads those of all. It may block for
    as long as the network is cut, so another thread decides who is lost. Neither takes part in a collective.
    Both run while the main thread is busy in torch, in compiled code or in writing a file. So a slow process
    keeps beating, and a stopped or dead one does not.

    Attributes:
        beats: The latest heartbeat of each process: its number, the host, and whether the process has left
            the group properly; None before the first. This process's own shows that the store answers.
        silent: For how many seconds each heartbeat has not changed.
        doing: What this process does, for messages.
        lost: The error that names the lost process.
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
        self.timeout, self.is_busy, self.doing = timeout, is_busy, "start"
        self._limit, self._pause = timeout * _LOST_SHARE, min(timeout / _BEATS, _LONGEST_PAUSE_SECONDS)
        self.lost: GroupError | None = None
        self.beats: list[tuple[int, str, bool] | None] = [None] * size
        self.silent = [0.0] * size
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
            if not any(self.beats[rank] and self.silent[rank] > self._limit / 2 for rank in range(self.size)):
                break
            time.sleep(self._pause / 4)
        return self.lost

    def _beat(self) -> None:
        """Write this process's heartbeat and read all, again and again."""
        keys, host = [f"widenet/beat/{rank}" for rank in range(self.size)], socket.gethostname()
        number, ended = 0, False
        try:
            while not ended:
                ended, number = self._ended.wait(self._pause if number else 0), number + 1
                self.store.set(keys[self.rank], json.dumps((number, host, ended)))
                known = [
                    rank for rank, beat in enumerate(self.beats) if beat or self.store.check([keys[rank]])
                ]
                for rank, text in zip(
                    known, self.store.multi_get([keys[rank] for rank in known]), strict=True
                ):
                    self.beats[rank] = tuple(json.loads(text))
        except RuntimeError as error:
            # The store ends with the process that holds it. If the launcher held it, the launcher has also
            # ended its processes, which may still be saving.
            zero = self.beats[0]
            if self.hosted and self.rank != 0 and not (self._ended.is_set() or (zero and zero[2])):
                self._declare([0], f"its connection ended: {str(error).splitlines()[0]}")
            self._ended.set()

    def _watch(self) -> None:
        """Count for how long each process has been silent.

        A pause between two looks counts as two usual pauses at most. So a process that was stopped, or got no
        CPU time, does not report the others as lost when it continues.
        """
        before, then = [*self.beats], time.monotonic()
        while self.lost is None and not self._ended.wait(self._pause):
            passed, then = min(time.monotonic() - then, 2 * self._pause), time.monotonic()
            latest = [*self.beats]
            self.silent = [
                0.0 if beat != old or (beat and beat[2]) else silent + passed
                for beat, old, silent in zip(latest, before, self.silent, strict=True)
            ]
            before = latest
            self.check()
        # On CUDA a collective runs on the device. No error can release the thread that waits for its result.
        deadline = time.monotonic() + STUCK_SECONDS
        while self.lost is not None and self.is_busy():
            if time.monotonic() > deadline:
                sys.stderr.write(f"widenet: {self.lost}\n")
                sys.stderr.flush()
                os._exit(GroupError.status)
            time.sleep(self._pause)

    def check(self) -> None:
        """Declare lost every process that has been silent for too long, or that has not joined in time.

        The silence of another process counts up to the store's latest answer only. If the store itself is
        silent, nothing is known of the others.
        """
        own = self.silent[self.rank]
        lost, missing = list[int](), list[int]()
        for rank, beat in enumerate(self.beats):
            if beat is None and self.silent[rank] > JOIN_SECONDS:
                missing.append(rank)
            elif beat is not None and self.silent[rank] - own > self._limit:
                lost.append(rank)
        if self.beats[self.rank] is not None and own > self._limit:
            if self.hosted and self.rank != 0:
                self._declare([0], f"no sign of life for {own:.0f} seconds")
            else:
                # This process cannot reach the store, and so cannot know who is lost.
                cause = f"{self.meeting}, where its group meets, has not answered for {own:.0f} seconds"
                self._declare([self.rank], cause)
        elif lost:
            self._declare(lost, f"no sign of life for {self.silent[lost[0]]:.0f} seconds")
        elif missing:
            self._declare(missing, f"it did not join within {JOIN_SECONDS:.0f} seconds")

    def _declare(self, ranks: Sequence[int], cause: str) -> None:
        """Report a loss, with the step and layer at which this process waits; fail the work of its line."""
        beats = [(rank, self.beats[rank]) for rank in ranks]
        names = [
            f"process {rank} of {self.size}{f' (host {beat[1]})' if beat else ''}" for rank, beat in beats
        ]
        verb = "were" if len(names) > 1 else "was"
        self.lost = GroupError(f"{' and '.join(names)} {verb} lost at {self.doing}: {cause}")
        line().fail(self.lost)
