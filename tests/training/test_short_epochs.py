"""Checkpoints of trainings with many short epochs: not after each, and nothing is lost."""

import json

import pytest

from tests.training.test_saving import Watch, at, saved
from tests.trainings import SETTINGS, books, outcome
from widenet.runs import train
from widenet.training import loop


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data").path


class Ticking:
    """A clock that goes on by some seconds with every step."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(loop, "monotonic", lambda: self.now)

    def tick(self, _):
        self.now += self.seconds


def short_epochs(**more):
    """Documents of eight epochs of five steps, with the default time between checkpoints."""
    network, training = SETTINGS["momentum"]
    return network, {**training, "epochs": 8, "checkpoints": {"keep_last": 99}, **more}


def test_of_epochs_that_are_short_those_have_checkpoints_that_end_seconds_after_the_last_one(
    data, tmp_path, monkeypatch
):
    each = {"checkpoints": {"min_seconds": 0, "keep_last": 99}}
    train(*short_epochs(**each), data, tmp_path / "each")
    assert len(saved(tmp_path / "each")) == 8
    clock = Ticking(monkeypatch, 0.5)
    train(*short_epochs(), data, tmp_path / "run", report=Watch(act=clock.tick))
    # Two epochs take 5 s. The first and the last one always have one.
    assert saved(tmp_path / "run") == [at(1, 0), at(3, 0), at(5, 0), at(7, 0), at(8, 0)]
    clock.seconds = 0.4
    train(*short_epochs(), data, tmp_path / "faster", report=Watch(act=clock.tick))
    assert saved(tmp_path / "faster") == [at(1, 0), at(4, 0), at(7, 0), at(8, 0)]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "faster") == outcome(tmp_path / "each")


def epochs_that_were_better(run, metric):
    """The epochs after which a metric was higher than ever before."""
    values = [json.loads(line)[metric] for line in (run / "log.jsonl").read_text().splitlines()]
    return {epoch for epoch, value in enumerate(values, 1) if value > max([-1, *values[: epoch - 1]])}


@pytest.mark.parametrize("every", [1, 4])
def test_an_epoch_that_is_kept_as_the_best_has_a_checkpoint_however_short(every, data, tmp_path, monkeypatch):
    # Else best/ would be of a later epoch than the checkpoint, and a resume with other bits might never
    # come to an epoch that is better than the one before.
    clock = Ticking(monkeypatch, 0.0)
    out, metric = tmp_path / "run", "ndcg@5"
    checkpoints = {"keep_last": 99, "every_epochs": every}
    documents = short_epochs(keep="best", evaluation={"metric": metric}, checkpoints=checkpoints)
    train(*documents, data, out, report=Watch(act=clock.tick))
    better = epochs_that_were_better(out, metric)
    assert 1 < len(better) < 8
    assert saved(out) == [at(epoch, 0) for epoch in sorted(better | {8})]
