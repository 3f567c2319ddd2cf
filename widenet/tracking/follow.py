"""Follows a training with a tracker, which can neither stop nor delay it."""

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.tracking.mlflow_run import MlflowRun, check_installed, check_store, load, parameters_of
from widenet.tracking.tracker_uri import TrackingUri
from widenet.training.run_directory import RunDirectory, WeightsFacts
from widenet.training.run_path import FITTED, TRACKING, values, write_whole
from widenet.training.state import LoopState, Report, numbers_of

T = TypeVar("T")

START_SECONDS = 60.0
"""How long a training waits for its tracker before it starts: a new database takes a while."""
END_SECONDS = 20.0
"""How long it waits at its end."""
_LARGEST_REPORT_BYTES = 16 << 20


class Background:
    """One daemon thread that makes calls in the order in which they come.

    The process does not wait for the thread when it ends.
    """

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tracker", daemon=True).start()

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Make a call after those before it; return its result to come."""
        result: Future[T] = Future()
        self.calls.put((call, result))
        return result

    def _run(self) -> None:
        while True:
            call, result = self.calls.get()
            try:
                result.set_result(call())
            except Exception as error:
                result.set_exception(error)


def check_tracker(track: str, run: Path | None) -> None:
    """Raise OptionError unless a tracker can be used.

    Args:
        track: The tracker, such as "mlflow:sqlite:///mlflow.db".
        run: The run directory if the training resumes; None for a new one.
    """
    place, recorded = TrackingUri.of(track), None if run is None else _recorded(run)
    load()
    try:
        Background().submit(lambda: check_store(place.uri, recorded)).result(START_SECONDS)
    except Exception as error:
        reason = _reason(place, error, START_SECONDS)
        raise OptionError(f"`track`: {place.shown} cannot be used: {reason}. Check the URI.") from None


@contextmanager
def followed(report: Report, track: str, run: RunDirectory, dataset: Dataset) -> Iterator[Report]:
    """Give a report that tells a tracker of the training, too; the tracker's run ends with the block.

    Without the tracker's library, it is the report itself, which has said so.
    """
    try:
        check_installed()
    except OptionError as error:
        report.say(f"This training is not recorded: {error}")
        yield report
        return
    tracked = _Tracked(report, TrackingUri.of(track), run, dataset)
    status = "FAILED"
    try:
        yield tracked
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        tracked.end(status)


def add_report(track: str, run: RunDirectory, file: Path, say: Callable[[str], None]) -> None:
    """Add the report of a run to the tracker's run, unless it is large; `say` is told of a failure."""
    place, run_id = TrackingUri.of(track), _recorded(run.path)
    if run_id is None or file.stat().st_size > _LARGEST_REPORT_BYTES:
        return
    try:
        Background().submit(lambda: MlflowRun.open(place.uri, run_id).add_file(file)).result(END_SECONDS)
    except Exception as error:
        say(f"{place.shown} does not have {file.name}: {_reason(place, error, END_SECONDS)}.")


class _Tracked(Report):
    """A report that hands everything on, and the numbers of the epochs to a tracker as well.

    What the tracker could not take, it gets after a later epoch, or when the training resumes. Its calls are
    made in another thread, which alone reads and writes `tracker` and `sent`.
    """

    def __init__(self, report: Report, place: TrackingUri, run: RunDirectory, dataset: Dataset) -> None:
        self.report, self.place, self.run, self.dataset = report, place, run, dataset
        self.background = Background()
        self.records: list[dict[str, Any]] = []
        self.pending: Future[None] | None = None
        self.has_warned = False
        self.tracker: MlflowRun | None = None
        self.sent: set[int] = set()

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        self.report.start(state, epochs, examples_per_epoch)
        self.records = [_flat(record) for record in self.run.records()]
        self._send()

    def advance(self, num_examples: int, loss: float) -> None:
        self.report.advance(num_examples, loss)

    def epoch(self, record: dict[str, Any]) -> None:
        self.report.epoch(record)
        self.records.append(_flat(record))
        self._send()

    def tried(self, text: str) -> None:
        self.report.tried(text)

    def say(self, text: str) -> None:
        self.report.say(text)

    def end(self, status: str) -> None:
        """Tell the tracker how the training ended, and wait for it at most `END_SECONDS`."""
        self.pending = self.background.submit(partial(self._end, list(self.records), status))
        try:
            self.pending.result(END_SECONDS)
        except Exception as error:
            self._warn(error)

    def _send(self) -> None:
        """Hand over what the tracker lacks, unless it is still busy: then it comes with the next epoch."""
        if self.pending is not None:
            if not self.pending.done():
                return
            error = self.pending.exception()
            if error is not None:
                self._warn(error)
        self.pending = self.background.submit(partial(self._log, list(self.records)))

    def _warn(self, error: BaseException) -> None:
        if not self.has_warned:
            self.has_warned = True
            reason = _reason(self.place, error, END_SECONDS)
            self.report.say(
                f"{self.place.shown} does not take what it is told: {reason}. The training continues; widenet"
                " tries again after each epoch, and when the training resumes."
            )

    def _log(self, records: list[dict[str, Any]]) -> None:
        if self.tracker is None:
            self.tracker = self._opened()
            self.sent = self.tracker.epochs()
        for record in records:
            if record["epoch"] not in self.sent:
                self.tracker.log(record)
                self.sent.add(record["epoch"])

    def _end(self, records: list[dict[str, Any]], status: str) -> None:
        self._log(records)
        assert self.tracker is not None
        tags = {}
        if (self.run.path / "model").is_dir():
            facts = WeightsFacts.of(self.run.model().facts)
            if facts.network is not None:
                self.tracker.add_file(self.run.path / FITTED)
                fitted = {f"fitted.{name}": value for name, value in (facts.metrics or {}).items()}
                self.tracker.log({"epoch": facts.epochs, **fitted})
            if facts.fingerprint is not None:
                tags["widenet.fingerprint"] = facts.fingerprint
        self.tracker.end(status, tags)

    def _opened(self) -> MlflowRun:
        """The tracker's run of this training, made or resumed, with its documents."""
        load()  # A group that torchrun restarts has not called `check_tracker`.
        path, run_id = self.run.path, _recorded(self.run.path)
        if run_id is None:
            tracker = MlflowRun.begin(self.place.uri, path.name)
            write_whole(path / TRACKING, f"{json.dumps({'mlflow': tracker.run_id})}\n".encode())
        else:
            tracker = MlflowRun.open(self.place.uri, run_id)
            tracker.resume()
        documents = {"network.json": self.run.network, "training.json": self.run.training}
        plain = {name.removesuffix(".json"): each.model_dump(mode="json") for name, each in documents.items()}
        tracker.describe(
            {name: each.to_json() for name, each in documents.items()},
            parameters_of(plain),
            {
                "widenet.run": str(path.resolve()),
                "widenet.data": str(self.dataset.path),
                "widenet.data_digest": self.dataset.digest,
            },
        )
        return tracker


def _recorded(run: Path) -> str | None:
    """The id of the tracker's run of a training; None before the tracker has made one."""
    run_id = next(values(run / TRACKING), {}).get("mlflow")
    return run_id if isinstance(run_id, str) else None


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a line by names that are no paths: a store may keep each in a file of its name."""
    return {name.replace("/", "."): value for name, value in numbers_of(record).items()}


def _reason(place: TrackingUri, error: BaseException, limit_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"it gave no answer within {limit_seconds:g} seconds"
    return place.reason(error)
