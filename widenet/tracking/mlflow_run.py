"""A run of MLflow: what it is told of a training."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from widenet.late_imports import optional

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


def check_installed() -> None:
    """Raise OptionError if MLflow is not installed; does not load it."""
    with optional("mlflow", "mlflow"):
        if find_spec("mlflow") is None:
            raise ModuleNotFoundError(name="mlflow")


def load() -> None:
    """Load MLflow with the settings above; raises OptionError if it is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    with optional("mlflow", "mlflow"):
        import mlflow.tracking  # noqa: F401


def client_of(uri: str | None) -> Any:
    """Return MLflow's client of a store, which never touches MLflow's global state."""
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri)


def check_store(uri: str | None, run_id: str | None) -> None:
    """Raise whatever MLflow raises if a store does not answer, or lacks a run."""
    if run_id is None:
        client_of(uri).get_experiment_by_name(_experiment())
    else:
        MlflowRun.open(uri, run_id)


@dataclass(frozen=True)
class MlflowRun:
    """A run in a store of MLflow. Every method calls the store and may raise whatever MLflow raises.

    Attributes:
        client: MLflow's client of the store.
        run_id: The run's name in the store.
    """

    client: Any
    run_id: str

    @classmethod
    def begin(cls, uri: str | None, name: str) -> "MlflowRun":
        """Make a run."""
        client, title = client_of(uri), _experiment()
        experiment = client.get_experiment_by_name(title)
        number = client.create_experiment(title) if experiment is None else experiment.experiment_id
        return cls(client, client.create_run(number, run_name=name).info.run_id)

    @classmethod
    def open(cls, uri: str | None, run_id: str) -> "MlflowRun":
        """Open a run that was made before."""
        client = client_of(uri)
        client.get_run(run_id)
        return cls(client, run_id)

    def resume(self) -> None:
        """Set the status of a run that continues."""
        self.client.update_run(self.run_id, status="RUNNING")

    def describe(
        self, documents: Mapping[str, str], parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        """Log the documents as files, their values as parameters, and tags."""
        from mlflow.entities import Param, RunTag

        values = [Param(name, str(value)) for name, value in parameters.items()]
        for start in range(0, len(values), _MOST_PARAMETERS):
            self.client.log_batch(self.run_id, params=values[start : start + _MOST_PARAMETERS])
        self.client.log_batch(self.run_id, tags=[RunTag(*tag) for tag in tags.items()])
        for name, text in documents.items():
            self.client.log_text(self.run_id, text, name)

    def epochs(self) -> set[int]:
        """Return the epochs whose metrics the run has."""
        return {metric.step for metric in self.client.get_metric_history(self.run_id, "loss")}

    def log(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of an epoch, a line of log.jsonl."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(_name(name), float(value), now, record["epoch"])
            for name, value in record.items()
            if name != "epoch" and isinstance(value, int | float)
        ]
        self.client.log_batch(self.run_id, metrics=metrics)

    def add_file(self, path: Path) -> None:
        """Keep a file with the run."""
        self.client.log_artifact(self.run_id, str(path))

    def end(self, status: str, tags: Mapping[str, str]) -> None:
        """Set the status FINISHED, KILLED or FAILED, and tags."""
        for name, value in tags.items():
            self.client.set_tag(self.run_id, name, value)
        self.client.set_terminated(self.run_id, status)


def parameters_of(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return every value inside documents by its place: "network.layers.1.units"."""
    return {
        _name(place): value for name, values in documents.items() for place, value in _leaves(name, values)
    }


def _leaves(place: str, values: Any) -> Iterator[tuple[str, Any]]:
    inside: Sequence[tuple[object, Any]] = ()
    if isinstance(values, Mapping):
        inside = list(values.items())
    elif isinstance(values, list):
        inside = list(enumerate(values))
    if not inside:
        yield place, values
    for name, value in inside:
        yield from _leaves(f"{place}.{name}", value)


def _name(name: str) -> str:
    """A name with letters that MLflow takes: "ndcg_at_20"."""
    plain = name.replace("@", "_at_")
    return "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-. :/") else "_" for letter in plain
    )


def _experiment() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
