"""Measured trainings: which steps count, what is evaluated, and that nothing is kept."""

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


def test_steps_after_the_first_and_evaluations_count_as_in_training(data):
    found = measured(data, epochs=4, evaluation={"every_epochs": 2, "part": "validation"})
    steps = -(-data.num_examples // min(SETTINGS["momentum"][1]["batch_size"], data.num_examples))
    assert (found.step_seconds, found.steps_per_epoch) == (1.0, steps)
    assert (found.evaluation_seconds, found.training_seconds) == (1.0, 4.0 * steps + 2)
    assert found.source.startswith("9 steps here, ")
