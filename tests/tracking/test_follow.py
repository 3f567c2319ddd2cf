"""Trainings that MLflow records: read back by MLflow's own client, from stores on a disk."""

import json
import shutil

import pytest

from tests.mistakes import mistake
from tests.runs.test_neighbourhood import TRAINING, world
from tests.trainings import SETTINGS, After, Heard, books, tied_near
from widenet.errors import OptionError
from widenet.runs import train

tracking = pytest.importorskip(
    "mlflow.tracking", reason="mlflow is not installed; `make test-mlflow` installs it"
)


pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow's own code


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data")


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty SQLite store, which takes MLflow a while to make."""
    file = tmp_path_factory.mktemp("empty") / "mlflow.db"
    tracking.MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def store(empty, tmp_path, monkeypatch):
    """The URI of an empty SQLite store; artifacts lie below the current folder, as MLflow has it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty, tmp_path)
    return f"sqlite:///{tmp_path}/mlflow.db"


def recorded(uri):
    """What MLflow has of the one run in a store: the run, the loss by epoch, and its files' names."""
    client = tracking.MlflowClient(tracking_uri=uri)
    (experiment,) = [each for each in client.search_experiments() if each.name == "widenet"]
    (run,) = client.search_runs([experiment.experiment_id])
    losses = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, "loss")]
    return run, sorted(losses), sorted(file.path for file in client.list_artifacts(run.info.run_id))


def logged(run):
    lines = (run / "log.jsonl").read_text().splitlines()
    return [(record["epoch"], record["loss"]) for record in map(json.loads, lines)]


def test_mlflow_has_documents_numbers_and_identity_and_moves_no_bit(data, store, tmp_path):
    plain = train(*SETTINGS["momentum"], data, tmp_path / "plain")
    model = train(*SETTINGS["momentum"], data, tmp_path / "run", track=f"mlflow:{store}")
    assert model.facts["fingerprint"] == plain.facts["fingerprint"]
    run, losses, files = recorded(store)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "run"
    assert losses == logged(tmp_path / "run")
    norms = model.run.records()[-1]
    assert run.data.metrics["norms.weights.taste.history"] == norms["norms/weights/taste/history"]
    assert run.data.metrics["norms.activations.taste"] == norms["norms/activations/taste"]
    assert files == ["network.json", "training.json"]
    assert run.data.params["network.layers.taste.units"] == "6"
    assert run.data.params["training.epochs"] == str(model.run.training.epochs)
    assert {name: tag for name, tag in run.data.tags.items() if name.startswith("widenet.")} == {
        "widenet.run": str(tmp_path / "run"),
        "widenet.data": str(data.path),
        "widenet.data_digest": data.digest,
        "widenet.fingerprint": model.facts["fingerprint"],
    }


def test_mlflow_has_the_network_with_its_fitted_term_and_the_metrics_with_it(store, tmp_path):
    training = {**TRAINING, "evaluation": {"metric": "ndcg@5"}}
    term = {"weight": 0.001, "neighbours": 2, "fit": True}
    pairs = world(tmp_path / "data")
    model = train(tied_near(**term), training, pairs, tmp_path / "run", track=f"mlflow:{store}")
    run, _, files = recorded(store)
    assert (run.info.status, files) == ("FINISHED", ["network-fitted.json", "network.json", "training.json"])
    assert run.data.tags["widenet.fingerprint"] == model.facts["fingerprint"]
    found = {name: value for name, value in run.data.metrics.items() if name.startswith("fitted.")}
    metrics = model.facts["metrics"]
    assert found == {f"fitted.{name.replace('@', '_at_')}": value for name, value in metrics.items()}


def test_a_resumed_training_continues_its_run_of_mlflow(data, store, tmp_path):
    settings, out = SETTINGS["momentum"], tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(*settings, data, out, track=f"mlflow:{store}", interrupted=After(8))
    before, _, _ = recorded(store)
    assert before.info.status == "KILLED"
    train(*settings, data, out, track=f"mlflow:{store}", resume=True)
    run, losses, _ = recorded(store)
    assert run.info.run_id == before.info.run_id
    assert run.info.status == "FINISHED"
    assert losses == logged(out)


def test_a_store_that_breaks_is_told_once_and_moves_no_bit(data, store, tmp_path):
    file, away, heard = tmp_path / "mlflow.db", tmp_path / "away", Heard()

    def break_store(network, epochs):
        del network
        if epochs == 1:
            file.rename(away)
            file.mkdir()

    plain = train(*SETTINGS["momentum"], data, tmp_path / "plain")
    settings = (*SETTINGS["momentum"], data, tmp_path / "run")
    model = train(*settings, track=f"mlflow:{store}", report=heard, after_epoch=break_store)
    assert model.facts["fingerprint"] == plain.facts["fingerprint"]
    assert len([text for text in heard.said if "mlflow" in text]) == 1


def test_a_store_that_cannot_be_used_is_refused_before_the_run_directory_is_made(data, tmp_path):
    with mistake(OptionError, option="track") as caught:
        train(*SETTINGS["momentum"], data, tmp_path / "run", track="mlflow:bogus://bob:hunter2@host")
    assert "hunter2" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_resumed_training_needs_the_store_that_has_its_run(data, store, empty, tmp_path):
    settings = (*SETTINGS["momentum"], data, tmp_path / "run")
    train(*settings, track=f"mlflow:{store}")
    other = shutil.copy(empty, tmp_path / "other.db")
    with mistake(OptionError):
        train(*settings, track=f"mlflow:sqlite:///{other}", resume=True)
