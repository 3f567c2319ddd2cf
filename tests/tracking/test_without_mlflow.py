"""What names a tracker, and a document that asks for one that is not there: the training goes on."""

import sys

import pytest

from tests.mistakes import mistake
from tests.trainings import SETTINGS, After, Heard, books
from widenet.errors import OptionError
from widenet.runs import train
from widenet.tracking import shown, uri_of
from widenet.tracking.mlflow_run import followed

SECRET = "hunter2"


@pytest.mark.parametrize(
    "text", ["", "mlflow:", "wandb", f"https://bob:{SECRET}@host", f"mlflo:x?token={SECRET}"]
)
def test_another_form_is_refused_without_repeating_it(text):
    with mistake(OptionError, option="track") as caught:
        uri_of(text)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mlflow", "mlflow"),
        ("mlflow:databricks", "mlflow:databricks"),
        ("mlflow:http://localhost:5000", "mlflow:http://localhost:5000"),
        ("mlflow:sqlite:///mlflow.db", "mlflow:sqlite:///mlflow.db"),
        (f"mlflow:https://bob:{SECRET}@host/a", "mlflow"),
        (f"mlflow:https://host/a?token={SECRET}", "mlflow"),
        (f"mlflow:http://host/#{SECRET}", "mlflow"),
        (f"mlflow:{SECRET}@host?x=http://y", "mlflow"),
    ],
)
def test_a_uri_that_may_hold_a_secret_is_not_shown(text, expected):
    assert shown(text) == expected


def test_a_document_whose_tracker_is_missing_trains_to_the_same_bits(tmp_path, monkeypatch):
    for name in [each for each in sys.modules if each.split(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    data = books(tmp_path / "data")
    network, training = SETTINGS["momentum"]
    plain = train(network, training, data, tmp_path / "plain")
    tracked, out, heard = {**training, "track": "mlflow"}, tmp_path / "run", Heard()
    with pytest.raises(KeyboardInterrupt):
        train(network, tracked, data, out, interrupted=After(8), report=heard)
    model = train(network, tracked, data, out, resume=True, report=heard)
    assert model.facts["fingerprint"] == plain.facts["fingerprint"]
    assert len([text for text in heard.said if "mlflow" in text]) == 2
    assert model.run.training.track == "mlflow"


def test_an_error_of_a_training_that_is_not_recorded_has_no_other_one_behind_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    data = books(tmp_path / "data")
    run = train(*SETTINGS["momentum"], data, tmp_path / "run").run
    track = f"mlflow:https://bob:{SECRET}@host"
    with pytest.raises(ValueError, match="later") as caught, followed(Heard(), track, run, data):
        raise ValueError("later")
    assert caught.value.__context__ is None
