"""Measured trainings: which steps count, what is ranked and evaluated, and that nothing is kept."""

import errno
import os
from itertools import count
from types import SimpleNamespace

import pytest

from tests.trainings import SETTINGS, books
from widenet.data.dataset import Dataset
from widenet.runs import measuring
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Dataset.open(books(tmp_path_factory.mktemp("books") / "data"))


def measured(data, **changes):
    network, training = SETTINGS["momentum"]
    documents = NetworkSpec.of(network), TrainingSpec.of({**training, **changes})
    layout = check_training(*documents, data.path, data.manifest)
    return measuring.measure(layout, data, "cpu")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that is a second later whenever somebody looks."""
    looks = count()
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: float(next(looks))))


def test_steps_after_the_first_count_until_they_have_taken_long_enough(data):
    found = measured(data, epochs=100, evaluation=None)
    steps = -(-data.num_examples // found_batch(data))
    assert (found.step_seconds, found.steps_per_epoch) == (1.0, steps)
    assert found.source.startswith("9 steps here, ")
    assert found.training_seconds == pytest.approx(100.0 * (steps + found.checkpoint_seconds))


def found_batch(data):
    return min(SETTINGS["momentum"][1]["batch_size"], data.num_examples)


def test_examples_are_ranked_as_by_predict_and_evaluated_as_in_training(data):
    found = measured(data, epochs=4, evaluation={"every_epochs": 2, "part": "validation"})
    assert found.recommendation_seconds == 1.0
    assert found.evaluation_seconds == 1.0
    assert found.training_seconds == pytest.approx(
        4 * found.epoch_seconds + 2.0 + 4 * found.checkpoint_seconds
    )


def test_a_checkpoint_is_written_beside_the_dataset_and_removed(data):
    """The clock goes on by a second while all of this small checkpoint is written."""
    before = sorted(data.path.parent.rglob("*"))
    assert measured(data).checkpoint_seconds == pytest.approx(1.0, rel=0.05)
    assert sorted(data.path.parent.rglob("*")) == before


def test_a_folder_that_takes_no_checkpoint_is_not_counted(data, monkeypatch):
    def refuses(path, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(measuring, "write", refuses)
    found = measured(data, epochs=2, evaluation=None)
    assert (found.checkpoint_seconds, found.training_seconds) == (None, 2 * found.epoch_seconds)
