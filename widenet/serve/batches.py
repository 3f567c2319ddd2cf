"""One thread that computes: what has arrived is a batch, and a newer model comes between two of them.

A batch waits for as many rows as those of the batch before it and those that waited then, but not for long.
No more rows wait than the model answers in a given time, by the time that its latest batches took.

Another thread follows the run: a newer model is loaded beside the one that answers, checked, and swapped in.
"""

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from widenet.errors import WidenetError, in_one_line
from widenet.parallel.exchange import fixed_arithmetic
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.serve.engine import Engine
from widenet.serve.requests import Ask, RefusedError, Result, unavailable
from widenet.serve.serve_arguments import ServeArguments

_ROWS = PREDICTED_ROWS["cpu"]
"""Rows that take as long as one of them."""
_SHARE = 0.2
"""Share of the latest batch in the mean of the time that batches take."""


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


class _Waiting(NamedTuple):
    """A row.

    Attributes:
        ask: The request.
        result: Its answer; the event loop alone may change it.
        arrived: When it came.
    """

    ask: Ask
    result: "asyncio.Future[Result]"
    arrived: float


class ModelThread:
    """Answers requests of an event loop in batches.

    Attributes:
        engine: The model that answers the next batch.
        arguments: When a batch begins, and how much may wait.
        max_rows: Largest number of rows of a request.
        deadline_seconds: After this, nobody waits for a row any more.
    """

    def __init__(self, engine: Engine, arguments: ServeArguments, measured: Measurements) -> None:
        self.engine, self.arguments, self.measured = engine, arguments, measured
        self.max_rows = min(arguments.queue, arguments.max_batch)
        self.deadline_seconds = arguments.deadline_ms / 1000
        self._waiting: deque[_Waiting] = deque()
        self._expected, self._free_since = 1, 0.0
        self._block_seconds, self._most = 0.0, arguments.queue
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
        return began is not None and monotonic() - began > self.deadline_seconds

    async def answers(self, asks: Sequence[Ask]) -> Sequence[Result]:
        """Return the answer to each request, or why there is none.

        Raises:
            RefusedError: There is no room for all, the deadline is over, or the service ends.
        """
        loop, now = asyncio.get_running_loop(), monotonic()
        rows = [_Waiting(ask, loop.create_future(), now) for ask in asks]
        with self._changed:
            if self._closing:
                raise unavailable("ending", "the service ends")
            if len(self._waiting) + len(asks) > self._most:
                raise unavailable("busy", "too many requests wait")
            self._waiting.extend(rows)
            if self._wanted is not None and len(self._waiting) >= self._wanted:
                self._changed.notify()
        try:
            async with asyncio.timeout(self.deadline_seconds):
                return [await row.result for row in rows]
        except TimeoutError:
            for row in rows:
                row.result.cancel()
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
        self._thread.join(self.deadline_seconds)

    def _run(self) -> None:
        with fixed_arithmetic():
            while taken := self._take():
                self._answer(*taken)

    def _take(self) -> tuple[Engine, list[_Waiting]] | None:
        """Wait for a batch; None at the end."""
        max_batch = self.arguments.max_batch
        with self._changed:
            self._wait_for_rows(1)
            if not self._waiting:
                return None
            # Whoever was just answered often asks again: a batch of all takes hardly longer than one of half.
            enough = min(max_batch, self._expected)
            began = max(self._waiting[0].arrived, self._free_since)
            left = began + self.arguments.max_delay_ms / 1000 - monotonic()
            if left > 0:
                self._wait_for_rows(enough, left)
            number = min(max_batch, len(self._waiting))
            return self.engine, [self._waiting.popleft() for _ in range(number)]

    def _wait_for_rows(self, number: int, seconds: float | None = None) -> None:
        """Wait until so many rows do, or the service ends; no row but the last wakes the thread."""
        self._wanted = number
        self._changed.wait_for(lambda: len(self._waiting) >= number or self._closing, seconds)
        self._wanted = None

    def _answer(self, engine: Engine, batch: Sequence[_Waiting]) -> None:
        awaited = [each for each in batch if not each.result.done()]
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
        queue, max_batch = self.arguments.queue, self.arguments.max_batch
        block = min(_ROWS, max_batch)
        latest = (end - start) / -(-len(awaited) // block)
        before = self._block_seconds or latest
        with self._changed:
            self._block_seconds = mean = before + _SHARE * (latest - before)
            blocks = int(self.arguments.max_wait_ms / 1000 / mean) if mean else queue
            self._most = min(queue, max(max_batch, blocks * block))  # a whole batch may always wait
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
            if not row.result.done():  # somebody waits for it
                row.result.set_result(result)

    rows[0].result.get_loop().call_soon_threadsafe(deliver)


_SECONDS_BETWEEN_LOOKS = 1.0


State = tuple[str, str, tuple[int, int] | None]


def state_of(run: Path) -> State:
    """Return what changes when a run's path leads to another model: its place, its pointer, its weights."""
    place, pointer, weights = run.resolve(), "", None
    try:
        status = (place / "model" / "manifest.json").stat()
        weights = status.st_ino, status.st_mtime_ns
    except OSError:
        try:
            pointer = (place / "checkpoints" / "latest").read_text("utf-8", errors="replace")
        except OSError:
            pointer = ""
    return str(place), pointer, weights


class Follower:
    """Replaces the model of a thread when its run has a newer one.

    Args:
        run: The run that is followed.
        state: Its state before the model that answers was loaded.
        model: The thread of the model.
        load: Loads the model of a run.
    """

    def __init__(self, run: Path, state: State, model: ModelThread, load: Callable[[Path], Engine]) -> None:
        self.run, self._model, self._load = run, model, load
        self._state, self._told = state, ""
        self._is_ending = Event()
        self._thread = Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End; a load that has begun is not waited for."""
        self._is_ending.set()

    def is_alive(self) -> bool:
        """Return whether it still looks or loads."""
        self._thread.join(0.1)
        return self._thread.is_alive()

    def look(self) -> None:
        """Swap the model in if the run has another one; a failure is told once, and the old one stays."""
        state = None
        try:
            state = state_of(self.run)
            if state == self._state:
                return
            engine = self._load(self.run)
        except Exception as error:
            self._model.measured.failed_loads.inc()
            if state is not None and not is_of_system(error):  # the same files may be readable later
                self._state = state
            sentence = str(error) if isinstance(error, WidenetError) else f"{type(error).__name__}: {error}"
            if self._told != sentence and not self._is_ending.is_set():  # the end may have caused it
                self._told = sentence
                _say(f"{self.run}: the model that answers stays: {sentence}")
            return
        self._state, self._told = state, ""
        if engine.fingerprint != self._model.engine.fingerprint:
            self._model.swap(engine)
            _say(f"{self.run}: a newer model answers: {engine.fingerprint}")

    def _follow(self) -> None:
        while not self._is_ending.wait(_SECONDS_BETWEEN_LOOKS):
            self.look()


def is_of_system(error: BaseException) -> bool:
    """Return whether the system caused an error: a disk was away, or too many files were open."""
    return any(isinstance(each, OSError) for each in (error, error.__cause__, error.__context__))


def _say(sentence: str) -> None:
    """Print a line to standard error; control characters become escapes."""
    print(f"widenet: {in_one_line(sentence)}", file=sys.stderr, flush=True)  # noqa: T201
