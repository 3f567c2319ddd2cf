"""One thread that computes: what has arrived is a batch, and a newer model comes between two of them.

A batch waits for as many rows as those of the batch before it and those that waited then, but not for long.
No more rows wait than the model answers in a given time, by the time that its latest batches took.
"""

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from widenet.parallel.exchange import fixed_arithmetic
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.serve.engine import Engine
from widenet.serve.requests import Ask, RefusedError, Result, unavailable

_ROWS = PREDICTED_ROWS["cpu"]
"""Rows that take as long as one of them."""
_SHARE = 0.2
"""Share of the latest batch in the mean of the time that batches take."""


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

    @property
    def block(self) -> int:
        """Rows that take as long as one of them."""
        return min(_ROWS, self.max_batch)


_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BUCKETS_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Measurements:
    """Counters and histograms of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "widenet_requests", "Requests, by route and status.", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "widenet_request_seconds",
            "Seconds from a request to its answer.",
            ["route"],
            buckets=_BUCKETS_SECONDS,
            registry=registry,
        )
        self.queue = Gauge("widenet_queue_rows", "Rows that wait for the model.", registry=registry)
        self.batches = Histogram(
            "widenet_batch_rows", "Rows computed together.", buckets=_BUCKETS_ROWS, registry=registry
        )
        self.busy = Counter("widenet_model_seconds", "Seconds of computing batches.", registry=registry)
        self.errors = Counter("widenet_errors", "Batches that failed unexpectedly.", registry=registry)
        self.swaps = Counter("widenet_swaps", "Models that replaced another one.", registry=registry)
        self.failed_loads = Counter("widenet_failed_loads", "Models that were refused.", registry=registry)
        self.model = Gauge(
            "widenet_model", "1 for the model that answers.", ["fingerprint"], registry=registry
        )

    def note(self, route: str, status: int, seconds: float) -> None:
        """Note an answer."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def answers_now(self, fingerprint: str) -> None:
        """Note which model answers."""
        self.model.clear()
        self.model.labels(fingerprint).set(1)

    def text(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return bytes(generate_latest(self.registry))


@dataclass(eq=False, slots=True)
class _Asked:
    """Requests that came together, and get their results together.

    Attributes:
        results: The results; its event loop alone may change it and the rest.
        found: The results so far.
        missing: How many there are not yet.
    """

    results: "asyncio.Future[list[Result | None]]"
    found: list[Result | None]
    missing: int

    def take(self, place: int, result: Result) -> None:
        """Take a result, for which perhaps nobody waits any more."""
        self.found[place] = result
        self.missing -= 1
        if not self.missing and not self.results.done():
            self.results.set_result(self.found)


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
    """

    def __init__(self, engine: Engine, rhythm: Rhythm, measured: Measurements) -> None:
        self.engine, self.rhythm, self.measured = engine, rhythm, measured
        self._waiting: deque[_Waiting] = deque()
        self._expected, self._free_since = 1, 0.0
        self._block_seconds, self._most = 0.0, rhythm.queue
        self._wanted: int | None = None  # rows that the thread waits for, if it does
        self._began: float | None = None  # when the batch that is being computed began
        self._changed, self._closing = Condition(), False
        self._thread = Thread(target=self._run, name="model", daemon=True)
        measured.queue.set_function(lambda: len(self._waiting))
        measured.answers_now(engine.fingerprint)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether requests are accepted."""
        return self.is_alive() and not self._closing

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_stuck(self) -> bool:
        """Whether the model computes a batch for longer than anybody waits."""
        began = self._began
        return began is not None and monotonic() - began > self.rhythm.deadline_seconds

    async def answers(self, asks: Sequence[Ask]) -> Sequence[Result | None]:
        """Return the answer to each request, or why there is none.

        Raises:
            RefusedError: There is no room for all, the deadline is over, or the service ends.
        """
        asked = _Asked(asyncio.get_running_loop().create_future(), [None] * len(asks), len(asks))
        now = monotonic()
        with self._changed:
            if self._closing:
                raise unavailable("ending", "the service ends")
            if len(self._waiting) + len(asks) > self._most:
                raise unavailable("busy", "too many requests wait")
            self._waiting.extend(_Waiting(ask, asked, place, now) for place, ask in enumerate(asks))
            if self._wanted is not None and len(self._waiting) >= self._wanted:
                self._changed.notify()
        try:
            async with asyncio.timeout(self.rhythm.deadline_seconds):
                return await asked.results
        except TimeoutError:
            raise too_late() from None

    def swap(self, engine: Engine) -> None:
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
        with fixed_arithmetic():
            while taken := self._take():
                self._answer(*taken)

    def _take(self) -> tuple[Engine, list[_Waiting]] | None:
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

    def _answer(self, engine: Engine, batch: Sequence[_Waiting]) -> None:
        awaited = [each for each in batch if not each.asked.results.done()]
        if not awaited:
            return
        self._began = start = monotonic()
        self.measured.batches.observe(len(awaited))
        try:
            results: Sequence[Result] = engine.answers([each.ask for each in awaited])
        except Exception as error:
            self.measured.errors.inc()
            tell("a batch failed, and its rows are computed one by one", error)
            results = [_alone(engine, each.ask) for each in awaited]
        end, self._began = monotonic(), None
        self.measured.busy.inc(end - start)
        latest = (end - start) / -(-len(awaited) // self.rhythm.block)
        before = self._block_seconds or latest
        with self._changed:
            self._block_seconds = before + _SHARE * (latest - before)
            self._most = self.rhythm.rows_in_time(self._block_seconds)
            self._expected, self._free_since = len(batch) + len(self._waiting), end
        _deliver(awaited, results)


def too_late() -> RefusedError:
    """Return the refusal of a request whose deadline is over."""
    return RefusedError(504, "too_late", "there was no time before the deadline")


def _alone(engine: Engine, ask: Ask) -> Result:
    """Return the answer to one row of a batch that failed."""
    try:
        return engine.answers([ask])[0]
    except Exception:
        return RefusedError(500, "failed", "the model failed on this request")


def tell(sentence: str, error: BaseException) -> None:
    """Print where an exception was raised, without its message, which may hold parts of a request."""
    places = "".join(traceback.format_tb(error.__traceback__))
    print(f"widenet: {sentence}: {type(error).__name__}.\n{places}", end="", file=sys.stderr)  # noqa: T201


def _deliver(rows: Sequence[_Waiting], results: Sequence[Result]) -> None:
    """Hand results to the event loop, all at once."""

    def deliver() -> None:
        for row, result in zip(rows, results, strict=True):
            row.asked.take(row.place, result)

    rows[0].asked.results.get_loop().call_soon_threadsafe(deliver)
