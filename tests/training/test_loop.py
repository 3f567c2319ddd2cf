"""The loop: logs, early stopping, the best weights, and numbers that are none."""

import json
import re
import threading

import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.data.stream import Stream
from widenet.errors import DataError, NumericsError
from widenet.runs import Model, Silence, train
from widenet.training import loop
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RECORDED, RunDirectory

ROWS = [[0, 1, 2], [1, 2, 3], [4, 5, 6], [5, 6, 7], [0, 2, 3], [4, 6, 7], [0, 1, 3]]
NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 4, "activation": "linear"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}


def training(epochs=4, **more):
    return {
        "epochs": epochs,
        "batch_size": 3,
        "shards": 2,
        "optimizer": {"kind": "sgd", "learning_rate": 0.5},
        **more,
    }


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(
        tmp_path / "data",
        ROWS,
        validation=[[row[0] + 1 if row[0] + 1 not in row else 0] for row in ROWS],
        width=8,
    )


@pytest.fixture
def scripted(monkeypatch):
    """Makes the evaluations of a training give these metrics, one after the other; gives the fingerprints
    at each of them.
    """

    def script(values):
        seen, left = [], list(values)

        def evaluate(network, *_):
            from widenet.training.checkpoint import fingerprint

            seen.append(fingerprint(network))
            return {"ndcg@20": left.pop(0), "recall@20": 0.5}

        monkeypatch.setattr("widenet.runs.training.evaluate", evaluate)
        return seen

    return script


def log(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


class Record(Silence):
    def __init__(self):
        self.steps, self.epochs, self.said = [], [], []

    def advance(self, num_examples, loss):
        self.steps.append((num_examples, loss))

    def epoch(self, record):
        self.epochs.append(record)

    def say(self, text):
        self.said.append(text)


def test_the_log_holds_a_line_an_epoch_with_the_mean_loss_over_its_examples(data, tmp_path):
    report = Record()
    each = {"checkpoints": {"min_seconds": 0}}
    train(NETWORK, training(3, **each), data, tmp_path / "run", report=report)
    assert [num for num, _ in report.steps] == [3, 3, 1] * 3
    lines = log(tmp_path / "run")
    assert all(line["reading_seconds"] <= line["seconds"] for line in lines)
    assert [line["checkpoint_seconds"] > 0 for line in lines] == [False, True, True]
    assert lines == report.epochs
    assert report.epochs[0]["start_loss"] == pytest.approx(report.epochs[0]["loss"], rel=1e-12)
    for epoch, record in enumerate(report.epochs):
        steps = report.steps[3 * epoch : 3 * epoch + 3]
        assert record["epoch"] == epoch + 1
        assert record["loss"] == pytest.approx(sum(num * loss for num, loss in steps) / 7, rel=1e-12)
        assert record["learning_rate"] == 0.5
    assert report.epochs[2]["loss"] < report.epochs[0]["loss"]


def test_evaluations_and_checkpoints_come_as_often_as_asked_and_at_the_end(data, tmp_path):
    spec = training(
        5, evaluation={"every_epochs": 2}, checkpoints={"min_seconds": 0, "every_epochs": 3, "keep_last": 9}
    )
    train(NETWORK, spec, data, tmp_path / "run")
    assert [record["epoch"] for record in log(tmp_path / "run") if "ndcg@20" in record] == [2, 4, 5]
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*"))
    assert names == ["epoch-00003-step-000000000", "epoch-00005-step-000000000"]


@pytest.mark.parametrize("values", [[0.1, 0.4, 0.3, 0.4], [0.5, 0.1, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4]])
def test_keep_best_ends_with_the_weights_of_the_first_best_evaluation(values, data, tmp_path, scripted):
    seen = scripted(values)
    report = Record()
    model = train(NETWORK, training(4, evaluation={}, keep="best"), data, tmp_path / "run", report=report)
    best = values.index(max(values))
    assert report.said == [f"Keeping the weights of epoch {best + 1}, whose evaluation was the best."]
    assert len(set(seen)) == 4
    assert model.fingerprint() == Model.load(tmp_path / "run").fingerprint() == seen[best]
    facts = {
        "epochs": 4,
        "best": values[best],
        "best_epoch": best + 1,
        "examples": data.digest,
    }
    assert Checkpoint.open(tmp_path / "run" / "model").facts == {
        **facts,
        "fingerprint": seen[best],
        RECORDED: RunDirectory.open(tmp_path / "run").digests,
    }


@pytest.mark.parametrize(("patience", "epochs"), [(1, 2), (2, 5), (None, 6)])
def test_training_stops_after_so_many_evaluations_without_a_better_metric(
    patience, epochs, data, tmp_path, scripted
):
    scripted([0.2, 0.2, 0.3, 0.3, 0.1, 0.2])
    spec = training(6, evaluation={"stop_after": patience}, checkpoints={"every_epochs": 9})
    report = Record()
    train(NETWORK, spec, data, tmp_path / "run", report=report)
    assert len(log(tmp_path / "run")) == epochs
    waited = {1: "its evaluation was", 2: "the last 2 evaluations were"}.get(patience)
    assert report.said == [f"Stopped early, after epoch {epochs} of 6: {waited} not better."] * (epochs < 6)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*")] == [
        f"epoch-{epochs:05d}-step-000000000"
    ]


def test_a_training_that_stopped_early_stays_stopped_when_resumed(data, tmp_path, scripted):
    scripted([0.2, 0.1])
    spec = training(6, evaluation={"stop_after": 1})
    first = train(NETWORK, spec, data, tmp_path / "run").fingerprint()
    assert train(NETWORK, spec, data, tmp_path / "run", resume=True).fingerprint() == first
    assert len(log(tmp_path / "run")) == 2


def test_a_training_that_diverges_ends_with_epoch_step_and_weight(data, tmp_path):
    spec = training(9, optimizer={"kind": "sgd", "learning_rate": 1e18})
    network = {
        "layers": [*NETWORK["layers"][:2], {**NETWORK["layers"][2], "activation": "linear", "loss": "l2"}]
    }
    with mistake(NumericsError) as caught:
        train(network, spec, data, tmp_path / "run")
    assert re.fullmatch("epoch 1, step [23]", caught.value.place)
    assert re.search(r'layer "(mid|out)"', caught.value.rule)


def test_weights_broken_by_the_last_step_of_an_epoch_are_never_saved(data, tmp_path, monkeypatch):
    made = []

    def breaking(network, *arguments):
        made.append(1)
        loss = whole(network, *arguments)
        if len(made) == 6:
            network.wide["out"].parts[1].weight[2, 3] = float("nan")
        return loss

    whole = loop.train_step
    monkeypatch.setattr(loop, "train_step", breaking)
    with mistake(NumericsError):
        train(NETWORK, training(4), data, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == "epoch-00001-step-000000000\n"
    monkeypatch.setattr(loop, "train_step", whole)
    resumed = train(NETWORK, training(4), data, tmp_path / "run", resume=True)
    assert resumed.fingerprint() == train(NETWORK, training(4), data, tmp_path / "other").fingerprint()


def batch_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("widenet-batches")]


def test_what_fails_while_a_batch_is_read_ahead_ends_the_training_and_no_thread_is_left(
    data, tmp_path, monkeypatch
):
    report, whole = Record(), Stream.batch

    def failing(stream, epoch, step):
        if (epoch, step) == (1, 2):
            raise DataError("the disk is gone.")
        return whole(stream, epoch, step)

    monkeypatch.setattr(Stream, "batch", failing)
    with mistake(DataError) as caught:
        train(NETWORK, training(4), data, tmp_path / "run", report=report)
    assert caught.tb is not None
    assert len(report.steps) == 5
    assert batch_threads() == []


def test_a_training_that_is_stopped_after_an_epoch_resumes_to_the_same_bits(data, tmp_path):
    """It saves there although no checkpoint is due, and its schedule is that of all epochs."""
    plan = training(4, schedule="cosine", checkpoints={"every_epochs": 3})
    whole = train(NETWORK, plan, data, tmp_path / "whole")
    record = Record()
    with pytest.raises(KeyboardInterrupt):
        train(NETWORK, plan, data, tmp_path / "run", after_epoch=lambda _, epoch: epoch == 2, report=record)
    assert len(record.epochs) == 2
    assert RunDirectory.open(tmp_path / "run").latest().path.name == "epoch-00002-step-000000000"
    again = {"resume": True, "after_epoch": lambda _, epoch: epoch != 3}
    with pytest.raises(KeyboardInterrupt):
        train(NETWORK, plan, data, tmp_path / "run", resume=True, after_epoch=lambda *_: True)
    ended = train(NETWORK, plan, data, tmp_path / "run", **again)
    assert ended.facts["fingerprint"] == whole.facts["fingerprint"]
