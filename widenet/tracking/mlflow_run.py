"""Recording trainings in MLflow, by its asynchronous logging: the training waits for nothing but its end."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.errors import OptionError, reason_of
from widenet.late_imports import optional
from widenet.spec.document import leaves_of
from widenet.tracking import may_hold_secret, shown, uri_of
from widenet.training.run_directory import RunDirectory, WeightsFacts
from widenet.training.run_path import FITTED, TRACKING, values, write_whole
from widenet.training.state import LoopState, Report

EXPERIMENT = "widenet"
"""The experiment, unless MLFLOW_EXPERIMENT_NAME names another."""
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""MLflow's settings, where the environment has none: no usage reports, and no waiting for minutes."""
_MOST_PARAMETERS = 100
"""MLflow takes at most this many in one call."""


def check_tracker(track: str, run: Path | None) -> None:
    """Raise OptionError unless a tracker can be used.

    Args:
        track: The tracker, such as "mlflow:sqlite:///mlflow.db".
        run: The run directory if the training resumes; None for a new one.
    """
    run_id = None if run is None else _recorded(run)
    try:
        client = _client(track)
        if run_id is None:
            client.get_experiment_by_name(_experiment())
        else:
            client.get_run(run_id)
    except OptionError:
        raise
    except Exception as error:
        raise OptionError(f"cannot be used: {_reason(track, error)}", option="track") from None


@contextmanager
def followed(report: Report, track: str, run: RunDirectory, dataset: Dataset) -> Iterator[Report]:
    """Give a report that tells MLflow of the training, too; MLflow's run ends with the block.

    If MLflow cannot record the training, it is the report itself, which has said so.
    """
    tracked = None
    try:
        tracked = _Tracked(report, track, run, dataset)
    except Exception as error:
        report.say(f"This training is not recorded: {_reason(track, error)}.")
    if tracked is None:  # outside `except`: else a later error would show MLflow's, and with it the URI
        yield report
        return
    status = "FAILED"
    try:
        yield tracked
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        tracked.end(status)


class _Tracked(Report):
    """A report that hands everything on, and the numbers of the epochs to MLflow as well.

    Making it calls MLflow and waits, and may raise whatever MLflow raises.
    """

    def __init__(self, report: Report, track: str, run: RunDirectory, dataset: Dataset) -> None:
        self.report, self.track, self.run = report, track, run
        self.client, self.pending = _client(track), list[Any]()
        run_id = _recorded(run.path)
        if run_id is not None:
            self.run_id = run_id
            self.client.update_run(run_id, status="RUNNING")
            return
        experiment = self.client.get_experiment_by_name(_experiment())
        number = getattr(experiment, "experiment_id", None) or self.client.create_experiment(_experiment())
        self.run_id = self.client.create_run(number, run_name=run.path.name).info.run_id
        write_whole(run.path / TRACKING, f"{json.dumps({'mlflow': self.run_id})}\n".encode())
        self._describe(dataset)

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        self.report.start(state, epochs, examples_per_epoch)

    def advance(self, num_examples: int, loss: float) -> None:
        self.report.advance(num_examples, loss)

    def epoch(self, record: dict[str, Any]) -> None:
        self.report.epoch(record)
        try:
            self._log(record["epoch"], record)
        except Exception as error:  # the training goes on
            self.report.say(f"{shown(self.track)} does not have this epoch: {_reason(self.track, error)}.")

    def tried(self, text: str) -> None:
        self.report.tried(text)

    def say(self, text: str) -> None:
        self.report.say(text)

    def end(self, status: str) -> None:
        """Tell MLflow how the training ended, and wait until it has everything."""
        try:
            if (self.run.path / "model").is_dir():
                facts = WeightsFacts.of(self.run.model().facts)
                if facts.network is not None:
                    self.client.log_artifact(self.run_id, str(self.run.path / FITTED))
                    fitted = {f"fitted.{name}": value for name, value in (facts.metrics or {}).items()}
                    self._log(facts.epochs or 0, fitted)
                if facts.fingerprint is not None:
                    self.client.set_tag(self.run_id, "widenet.fingerprint", facts.fingerprint)
            for operation in self.pending:
                operation.wait()
            self.client.set_terminated(self.run_id, status)
        except Exception as error:
            self.report.say(f"{shown(self.track)} does not have all numbers: {_reason(self.track, error)}.")

    def _describe(self, dataset: Dataset) -> None:
        """Log the documents as files, their values as parameters, and tags."""
        from mlflow.entities import Param

        documents = {"network": self.run.network, "training": self.run.training}
        plain = {name: document.model_dump(mode="json") for name, document in documents.items()}
        parameters = [Param(_name(place), str(value)) for place, value in leaves_of(plain)]
        for start in range(0, len(parameters), _MOST_PARAMETERS):
            self.client.log_batch(self.run_id, params=parameters[start : start + _MOST_PARAMETERS])
        for name, document in documents.items():
            self.client.log_text(self.run_id, document.to_json(), f"{name}.json")
        self.client.set_tag(self.run_id, "widenet.run", str(self.run.path.resolve()))
        self.client.set_tag(self.run_id, "widenet.data", str(dataset.path))
        self.client.set_tag(self.run_id, "widenet.data_digest", dataset.digest)

    def _log(self, epoch: int, numbers: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(_name(name), float(value), now, epoch)
            for name, value in numbers.items()
            if name != "epoch" and isinstance(value, int | float)
        ]
        self.pending.append(self.client.log_batch(self.run_id, metrics=metrics, synchronous=False))


def _client(track: str) -> Any:
    """Return MLflow's client of a store; raises OptionError if MLflow is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    with optional("mlflow", "mlflow"):
        from mlflow.tracking import MlflowClient
    return MlflowClient(tracking_uri=uri_of(track))


def _experiment() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT


def _recorded(run: Path) -> str | None:
    """The id of MLflow's run of a training; None before there is one."""
    run_id = next(values(run / TRACKING), {}).get("mlflow")
    return run_id if isinstance(run_id, str) else None


def _name(name: str) -> str:
    """A name with letters that MLflow takes, and no path: "ndcg_at_20", "network.layers.taste.units"."""
    plain = name.replace("@", "_at_").replace("/", ".").replace("[", ".").replace("]", "")
    return re.sub(r"[^A-Za-z0-9_\-. :]", "_", plain)


def _reason(track: str, error: Exception) -> str:
    """The first line of an error; of a store whose URI may hold a secret the name of the error alone."""
    uri = uri_of(track) or os.environ.get("MLFLOW_TRACKING_URI", "")
    return type(error).__name__ if may_hold_secret(uri) else reason_of(error)
