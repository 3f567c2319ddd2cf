"""From interactions to recommendations in one call."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest

import widenet
from widenet.errors import DataError
from widenet.runs import training
from widenet.runs.progress import TrainingReport

USERS, ITEMS = 30, 16
PAIRS = [
    (user, item) for user in range(USERS) for item in range(user % 2, ITEMS, 2) if (user // 2 + item // 2) % 4
]
"""Even users like even items, and odd users odd ones."""
COLUMNS = {"user": [user for user, _ in PAIRS], "item": [item for _, item in PAIRS]}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted")
    return widenet.fit(COLUMNS, folder / "run", device="cpu", quiet=True)


def test_a_run_is_an_ordinary_one_that_moves_with_its_dataset(fitted, tmp_path):
    out = tmp_path / "run"
    model = widenet.fit(COLUMNS, out, device="cpu", quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert widenet.Dataset.open(out / "data").fields["items"].parts == ("train", "validation")
    assert 0 <= model.evaluate(out / "data", "validation")["ndcg@20"] <= 1
    training = json.loads((out / "training.json").read_text())
    assert (training["keep"], training["evaluation"]["stop_after"]) == ("best", 3)
    before = model.recommend(users=4)
    out.rename(tmp_path / "moved")
    again = widenet.Model.load(tmp_path / "moved", "cpu")
    assert again.recommend(users=4) == before
    assert again.fingerprint() == fitted.fingerprint()
    assert widenet.train(None, None, tmp_path / "moved" / "data", tmp_path / "next", device="cpu").network


def test_with_times_the_newest_item_of_each_user_is_for_validation(tmp_path):
    times = np.random.default_rng(0).permutation(len(PAIRS))
    data = widenet.fit(
        {**COLUMNS, "time": times}, tmp_path / "run", time="time", device="cpu", quiet=True
    ).run.dataset()
    newest = pd.DataFrame({**COLUMNS, "time": times}).sort_values("time").groupby("user")["item"].last()
    aside = data.sparse("items", slice(None), "validation")
    assert aside.counts().tolist() == [1] * USERS
    names = data.vocabulary("items").ids(aside.indices.numpy())
    assert dict(zip(data.ids(slice(None)), names, strict=True)) == {
        str(user): str(item) for user, item in newest.items()
    }


def test_ctrl_c_leaves_a_run_that_resumes_to_the_same_weights(fitted, tmp_path, monkeypatch):
    epoch = TrainingReport.epoch

    def interrupted(report, record):
        epoch(report, record)
        if record["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "run"
    monkeypatch.setattr(TrainingReport, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        widenet.fit(COLUMNS, out, device="cpu")
    assert len(widenet.Model.load(out, "cpu").run.records()) == 2
    model = widenet.train(None, None, out / "data", out, resume=True, device="cpu")
    assert model.fingerprint() == fitted.fingerprint()
    assert model.recommend(users=4) == fitted.recommend(users=4)


def test_a_new_run_replaces_an_earlier_one_with_its_dataset(fitted, tmp_path, monkeypatch):
    out = tmp_path / "run"
    widenet.fit({name: column[:40] for name, column in COLUMNS.items()}, out, device="cpu", quiet=True)
    earlier = sorted(path.relative_to(out) for path in out.rglob("*"))
    with pytest.raises(DataError):
        widenet.fit({"user": [1], "thing": [2]}, out, overwrite=True, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingReport, "start", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            widenet.fit(COLUMNS, out, overwrite=True, device="cpu", quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(training, "train", lambda *_, **__: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            widenet.fit(COLUMNS, out, overwrite=True, device="cpu", quiet=True)
    assert sorted(path.relative_to(out) for path in out.rglob("*")) == earlier
    assert widenet.Model.load(out, "cpu").fingerprint() != fitted.fingerprint()
    model = widenet.fit(COLUMNS, out, overwrite=True, device="cpu", quiet=True)
    assert model.fingerprint() == fitted.fingerprint()
    assert list(tmp_path.iterdir()) == [out]
    assert widenet.Dataset.open(out / "data").num_examples == USERS
