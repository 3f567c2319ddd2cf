"""A training on executors has the fingerprint of the command line."""

import runpy
import sys

import pytest

import widenet
from tests.scale_page import begin
from widenet.errors import CheckpointError, DocumentError, OptionError

pytest.importorskip("pyspark", reason="pyspark is not installed; `make test-spark` installs it")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.usefixtures("spark"),
]

NETWORK = {
    "name": "n",
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 8, "activation": "tanh"},
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "activation": "softmax",
            "loss": "cross_entropy",
        },
    ],
}
TRAINING = {"epochs": 2, "batch_size": 16, "optimizer": {"kind": "adam", "learning_rate": 0.01}}


@pytest.fixture
def data(tmp_path):
    rows = [[(user * 7 + n * n) % 40 for n in range(5)] for user in range(100)]
    return widenet.dataset_from_lists(tmp_path / "ds", [sorted(set(row)) for row in rows]).path


def test_two_executors_give_the_weights_of_one_process(data, tmp_path):
    from widenet.spark import train

    alone = widenet.train(NETWORK, TRAINING, data, tmp_path / "alone", device="cpu").fingerprint()
    assert train(NETWORK, TRAINING, data, tmp_path / "run", processes=2) == alone
    assert widenet.Model.load(tmp_path / "run", "cpu").fingerprint() == alone
    with pytest.raises(CheckpointError, match="run"):
        train(NETWORK, TRAINING, data, tmp_path / "run", processes=2)


def test_mistakes_are_seen_before_executors_start(data, tmp_path):
    from widenet.spark import train

    with pytest.raises(OptionError, match="`processes` must be 1 to the number of shards, 8; got 9"):
        train(NETWORK, TRAINING, data, tmp_path / "run", processes=9)
    with pytest.raises(DocumentError, match="epochs"):
        train(NETWORK, {"epochs": -1}, data, tmp_path / "run", processes=2)
    assert not (tmp_path / "run").exists()


def test_the_job_of_the_page_on_scale_has_the_fingerprint_of_one_process(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin(tmp_path)
    widenet.ingest("interactions.csv", "local")
    expected = widenet.train("network.json", "training.json", "local", "one", device="cpu").fingerprint()
    monkeypatch.setattr(sys, "argv", ["job.py", str(tmp_path)])
    runpy.run_path("job.py", run_name="__main__")
    assert widenet.Model.load(tmp_path / "run").fingerprint() == expected
    assert spark.read.parquet(str(tmp_path / "recommendations")).count() == 500 * 10
