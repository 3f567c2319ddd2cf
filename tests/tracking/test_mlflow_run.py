"""A document asks for a tracker that is not there: the training says so once, and goes on."""

import sys

import pytest

from tests.trainings import SETTINGS, After, Heard, books
from widenet.runs import train

SAID = "This training is not recorded: mlflow: must be installed (`pip install 'widenet[mlflow]'`): "


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
    assert [text.startswith(SAID) for text in heard.said if "mlflow" in text] == [True, True]
    assert model.run.training.track == "mlflow"
