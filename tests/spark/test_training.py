"""A training on executors has the fingerprint of the command line."""

import random
import runpy
import sys

import pyarrow as pa
import pytest

import widenet
from tests.mistakes import mistake
from tests.scale_page import begin
from widenet.errors import CheckpointError, DocumentError, OptionError, StoreError

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
    with mistake(CheckpointError, place="run"):
        train(NETWORK, TRAINING, data, tmp_path / "run", processes=2)


def test_mistakes_are_seen_before_executors_start(spark, data, tmp_path):
    from widenet.spark import train

    with mistake(OptionError, option="processes"):
        train(NETWORK, TRAINING, data, tmp_path / "run", processes=9)
    with mistake(DocumentError, place="epochs"):
        train(NETWORK, {"epochs": -1}, data, tmp_path / "run", processes=2)
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with mistake(CheckpointError, place="run"):
        train(NETWORK, TRAINING, data, tmp_path / "run", processes=2, resume=True)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("caches")
def test_the_job_of_the_page_on_scale_has_the_fingerprint_of_one_process(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin(tmp_path)
    widenet.ingest("interactions.csv", "local")
    expected = widenet.train("network.json", "training.json", "local", "one", device="cpu").fingerprint()
    rows, out = str(tmp_path / "interactions.csv"), str(tmp_path / "recommendations")
    monkeypatch.setattr(sys, "argv", ["job.py", rows, "s3://shelf", out])
    runpy.run_path("job.py", run_name="__main__")
    assert widenet.Model.load("s3://shelf/run").fingerprint() == expected
    assert spark.read.parquet(str(tmp_path / "recommendations")).count() == 500 * 10


def table_of_100():
    draw = random.Random(4)
    rows = [(f"u{user}", f"i{draw.randrange(40)}") for user in range(100) for _ in range(5)]
    users, items = zip(*rows, strict=True)
    return pa.table({"user": users, "item": items})


def test_executors_that_share_a_store_alone_train_and_predict(spark, store, caches, tmp_path):
    from tests.spark.test_predictions import by_command
    from widenet.spark import predict, train

    data = widenet.ingest(table_of_100(), tmp_path / "ds")
    alone = widenet.train(NETWORK, TRAINING, data, tmp_path / "alone", device="cpu").fingerprint()
    widenet.ingest(table_of_100(), "s3://shelf/books")
    assert train(NETWORK, TRAINING, "s3://shelf/books", "s3://shelf/run", processes=2) == alone
    store.published("run")
    shards = {
        cache.name: {path.name for path in cache.rglob("model/wide-00.*")} for cache in caches.iterdir()
    }
    assert [len(names) for names in shards.values()] == [4, 4], shards
    assert len(set.union(*shards.values())) == 8
    frame = spark.createDataFrame(table_of_100().to_pandas())
    found = predict(frame, "s3://shelf/run", user="user", item="item", k=5, device="cpu")
    rows = [tuple(row) for row in found.orderBy("user", "rank").collect()]
    assert rows == by_command("s3://shelf/run", table_of_100(), tmp_path / "again", {}, {"k": 5})
    with mistake(StoreError, place="s3://shelf/run"):
        train(NETWORK, TRAINING, "s3://shelf/books", "s3://shelf/run", processes=2)
    kept = [*store.objects().values(), *(path.read_bytes() for path in caches.rglob("*") if path.is_file())]
    assert not any(secret.encode() in content for content in kept for secret in store.secrets)


def test_what_executors_cannot_use_is_one_sentence(spark, store, caches, tmp_path):
    from widenet.spark import train

    del spark, caches
    data = widenet.ingest(table_of_100(), tmp_path / "ds")
    with mistake(OptionError, place="s3://nowhere/run"):
        train(NETWORK, TRAINING, data.path, "s3://nowhere/run", processes=2)
    store.count_from_here(lambda *_: "403 Forbidden")
    with mistake(OptionError, place="s3://shelf/run"):
        train(NETWORK, TRAINING, data.path, "s3://shelf/run", processes=2)
