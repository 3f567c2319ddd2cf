"""One thread that computes: what has arrived is a batch, and a newer model comes between two of them.

A batch waits for as many rows as those of the batch before it and those that waited then, but not for long.
No more rows wait than the model answers in a given time, by the time that its latest batches took. While a
batch runs for longer than that, rows that come early take only places that later ones will leave free, and
none while far more come than the model answers.
"""

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple, Protocol

import msgspec

from widenet.plan.tiles import PREDICTED_ROWS
from widenet.serve.calls import DiedError
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Answer, Ask, RefusedError

Result = Answer | msgspec.Raw | RefusedError
"""An answer, perhaps in JSON already, or why there is none."""

_ROWS = PREDICTED_ROWS["cpu"]
"""Rows that take as long as one of them."""
_SHARE = 0.2
"""Share of the latest batch in the mean of the time that batches take."""
_LATE = RefusedError(504, "too_late", "the model had no time before the deadline.")


class Answering(Protocol):
    """A model that answers."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its weights."""

    def answers(self, asks: Sequence[Ask]) -> Sequence[Result]:
        """Return the answer to each request, or its refusal."""


@dataclass(frozen=True)
class Rhythm:
    """When a batch begins, and how much may wait.

    Attributes:
        max_batch: Largest number of rows of a batch.
        max_delay_seconds: How long a batch waits at most for the rows that it expects.
        queue: Largest number of rows that wait.
        max_wait_seconds: How long a row should wait at most for its batch.
        deadline_seconds: After this, nobody waits for a row any more.
    """

    max_batch: int
    max_delay_seconds: float
    queue: int
    max_wait_seconds: float
    deadline_seconds: float

    def rows_in_time(self, block_seconds: float) -> int:
        """Return how many rows may wait if the rows of a block take so long; a whole batch always may."""
        blocks = int(self.max_wait_seconds / block_seconds) if block_seconds else self.queue
        return min(self.queue, max(self.max_batch, blocks * self.block))

    def rows_too_early(self, came: int, seconds: float) -> int:
        """Return how many rows may wait before those that come within `max_wait_seconds` of their batch.

        They take the places that these leave free. If twice as many rows come as a batch has, and those
        within the time fill half of it, none may: the batch is hardly smaller, and its rows have not waited.

        Args:
            came: Rows that came since the batch before.
            seconds: Seconds since then.
        """
        in_time = int(came / seconds * self.max_wait_seconds)
        if came >= 2 * self.max_batch and in_time >= self.max_batch / 2:
            return 0
        return max(0, self.max_batch - in_time)

    @property
    def block(self) -> int:
        """Rows that take as long as one of them."""
        return min(_ROWS, self.max_batch)


@dataclass(eq=False, slots=True)
class _Asked:
    """Requests that came together, and get their results together.

    Attributes:
        loop: The event loop that they came from, which alone may change the rest.
        done: Called with the results.
        results: The results so far.
        missing: How many there are not yet.
        deadline: Ends the waiting; None once it is over.
    """

    loop: asyncio.AbstractEventLoop
    done: Callable[[list[Result]], None]
    results: list[Result]
    missing: int
    deadline: asyncio.TimerHandle | None = None

    def wait(self, seconds: float) -> None:
        """Wait for results, but not for longer."""
        late: list[Result] = [_LATE] * self.missing
        self.deadline = self.loop.call_later(seconds, self._end, late)

    def take(self, place: int, result: Result) -> None:
        """Take a result; nobody waits for one after the deadline."""
        self.results[place] = result
        self.missing -= 1
        if not self.missing and self.deadline is not None:
            self.deadline.cancel()
            self._end(self.results)

    def _end(self, results: list[Result]) -> None:
        self.deadline = None
        try:
            self.done(results)
        except Exception as error:  # those of the same batch get their results all the same
            tell("an answer was lost", error)


class _Waiting(NamedTuple):
    """A row, and whose it is."""

    ask: Ask
    asked: _Asked
    place: int
    arrived: float


class ModelThread:
    """Answers requests of an event loop in batches.

    Attributes:
        engine: The model that answers the next batch.
        has_died: Whether the thread has ended before `close`.
    """

    def __init__(self, engine: Answering, rhythm: Rhythm, measured: Measurements) -> None:
        self.engine, self.rhythm, self.measured = engine, rhythm, measured
        self._waiting: deque[_Waiting] = deque()
        self._expected, self._free_since = 1, 0.0
        self._block_seconds, self._most = 0.0, rhythm.queue
        self._came, self._early, self._ends = 0, rhythm.queue, 0.0
        self._wanted: int | None = None  # rows that the thread waits for, if it does
        self._began: float | None = None  # when the batch that is being computed began
        self._changed, self._closing, self.has_died = Condition(), False, False
        self._thread = Thread(target=self._run, name="model", daemon=True)
        measured.queue.set_function(lambda: len(self._waiting))
        measured.answers_now(engine.fingerprint)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether requests are accepted."""
        return self._thread.is_alive() and not self._closing

    @property
    def is_stuck(self) -> bool:
        """Whether the model computes a batch for longer than anybody waits."""
        began = self._began
        return began is not None and monotonic() - began > self.rhythm.deadline_seconds

    def admits(self) -> bool:
        """Return whether a row of a request may wait; one that may not has come, too."""
        has_room = len(self._waiting) < self._room()
        self._came += not has_room
        return has_room

    def _room(self) -> int:
        """Return how many rows may wait now."""
        is_early = self._ends - monotonic() > self.rhythm.max_wait_seconds
        return min(self._early, self._most) if is_early else self._most

    def offer(self, asks: Sequence[Ask], done: Callable[[list[Result]], None]) -> None:
        """Put requests into the queue, all or none.

        Args:
            asks: The requests.
            done: The running event loop calls it with the results, at the latest after the deadline.

        Raises:
            RefusedError: There is no room, or the service ends.
        """
        now = monotonic()
        asked = _Asked(asyncio.get_running_loop(), done, [_LATE] * len(asks), len(asks))
        with self._changed:
            if self._closing:
                raise RefusedError(503, "ending", "the service ends.", {"Retry-After": "1"})
            self._came += len(asks)
            if len(self._waiting) + len(asks) > self._room():
                raise busy()
            self._waiting.extend(_Waiting(ask, asked, place, now) for place, ask in enumerate(asks))
            if self._wanted is not None and len(self._waiting) >= self._wanted:
                self._changed.notify()
        asked.wait(self.rhythm.deadline_seconds)

    def swap(self, engine: Answering) -> None:
        """Let another model answer from the next batch on."""
        with self._changed:
            self.engine = engine
        self.measured.swaps.inc()
        self.measured.answers_now(engine.fingerprint)

    def close(self) -> None:
        """Answer everything that was accepted, then end; a stuck model is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self.rhythm.deadline_seconds)

    def _run(self) -> None:
        try:
            while taken := self._take():
                self._answer(*taken)
        except BaseException as error:
            tell("the thread of the model died", error)
            with self._changed:
                self.has_died = self._closing = True
                left, self._waiting = [*self._waiting], deque()
            if left:
                _deliver(left, [RefusedError(500, "failed", "the model failed.")] * len(left))

    def _take(self) -> tuple[Answering, list[_Waiting]] | None:
        """Wait for a batch; None at the end."""
        rhythm = self.rhythm
        with self._changed:
            self._wait_for_rows(1)
            if not self._waiting:
                return None
            # Whoever was just answered often asks again: a batch of all takes hardly longer than one of half.
            enough = min(rhythm.max_batch, self._expected)
            began = max(self._waiting[0].arrived, self._free_since)
            left = began + rhythm.max_delay_seconds - monotonic()
            if left > 0:
                self._wait_for_rows(enough, left)
            number = min(rhythm.max_batch, len(self._waiting))
            return self.engine, [self._waiting.popleft() for _ in range(number)]

    def _wait_for_rows(self, number: int, seconds: float | None = None) -> None:
        """Wait until so many rows do, or the service ends; no row but the last wakes the thread."""
        self._wanted = number
        self._changed.wait_for(lambda: len(self._waiting) >= number or self._closing, seconds)
        self._wanted = None

    def _answer(self, engine: Answering, batch: Sequence[_Waiting]) -> None:
        start = monotonic()
        awaited = [each for each in batch if start - each.arrived < self.rhythm.deadline_seconds]
        if not awaited:
            return
        self._began = start
        self.measured.batches.observe(len(awaited))
        self._ends = start + self._block_seconds * self._blocks(len(awaited))
        try:
            results: Sequence[Result] = engine.answers([each.ask for each in awaited])
        except DiedError:  # the service ends and says why
            results = [RefusedError(500, "failed", "the model failed.")] * len(awaited)
        except Exception as error:
            self.measured.errors.inc()
            tell("a batch failed, and its rows are computed one by one", error)
            results = [_alone(engine, each.ask) for each in awaited]
        end, self._began = monotonic(), None
        self.measured.busy.inc(end - start)
        with self._changed:
            self._note(len(awaited), end - start, end - self._free_since)
            self._expected, self._free_since = len(batch) + len(self._waiting), end
        _deliver(awaited, results)

    def _note(self, rows: int, seconds: float, since_latest: float) -> None:
        """Adapt the numbers of rows that may wait.

        Args:
            rows: Rows of the batch that has ended.
            seconds: Seconds that it took.
            since_latest: Seconds since the end of the batch before.
        """
        latest = seconds / self._blocks(rows)
        before = self._block_seconds or latest
        self._block_seconds = before + _SHARE * (latest - before)
        self._most = self.rhythm.rows_in_time(self._block_seconds)
        if since_latest > 0:
            self._early = self.rhythm.rows_too_early(self._came, since_latest)
        self._ends, self._came = 0.0, 0

    def _blocks(self, rows: int) -> int:
        return -(-rows // self.rhythm.block)


def busy() -> RefusedError:
    """Return the refusal of a request for which no row may wait."""
    return RefusedError(503, "busy", "too many requests wait. Try again later.", {"Retry-After": "1"})


def failed() -> RefusedError:
    """Return the refusal of a request on which the service itself fails."""
    return RefusedError(500, "failed", "the service failed on this request.")


def _alone(engine: Answering, ask: Ask) -> Result:
    """Return the answer to one row of a batch that failed."""
    try:
        return engine.answers([ask])[0]
    except Exception:
        return RefusedError(500, "failed", "the model failed on this request.")


def tell(sentence: str, error: BaseException) -> None:
    """Print where an exception was raised, without its message, which may hold parts of a request."""
    places = "".join(traceback.format_tb(error.__traceback__))
    print(f"widenet: {sentence}: {type(error).__name__}.\n{places}", end="", file=sys.stderr)  # noqa: T201


def _deliver(rows: Sequence[_Waiting], results: Sequence[Result]) -> None:
    """Hand results to the event loop, all at once."""

    def deliver() -> None:
        for row, result in zip(rows, results, strict=True):
            row.asked.take(row.place, result)

    rows[0].asked.loop.call_soon_threadsafe(deliver)
