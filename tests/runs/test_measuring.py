"""Measured hours: which steps count, what is ranked and evaluated, and that nothing is kept."""

from itertools import count
from types import SimpleNamespace

import pytest

from tests.trainings import SETTINGS, books
from widenet.data.dataset import Dataset
from widenet.runs import measuring
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.training.step import train_step


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return Dataset.open(books(tmp_path_factory.mktemp("books") / "data"))


def measured(data, **changes):
    network, training = SETTINGS["momentum"]
    layout = check_training(NetworkSpec.of(network), TrainingSpec.of({**training, **changes}), data)
    return measuring.measured_hours(layout, data, "cpu")


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
    assert found.training_seconds == 100.0 * steps


def found_batch(data):
    return min(SETTINGS["momentum"][1]["batch_size"], data.num_examples)


def test_a_training_of_one_step_is_measured_by_it(data):
    found = measured(data, epochs=1, batch_size=data.num_examples, evaluation=None)
    assert (found.step_seconds, found.training_seconds) == (1.0, 1.0)
    assert found.source.startswith("1 step here, ")


def test_examples_are_ranked_as_by_predict_and_evaluated_as_in_training(data):
    found = measured(data, epochs=4, evaluation={"every_epochs": 2, "part": "validation"})
    assert found.recommendation_seconds == 1.0
    assert found.evaluation_seconds == 1.0
    assert found.training_seconds == 4 * found.epoch_seconds + 2.0
    assert not found.at_least


def test_without_an_evaluation_none_is_measured(data):
    assert measured(data, evaluation=None).evaluation_seconds is None


@pytest.mark.parametrize("brake", [True, False])
def test_under_a_brake_the_weights_of_measured_steps_wait_for_the_loss(brake, data, monkeypatch):
    steps = []

    def trained(network, rule, step):
        steps.append(step)
        return train_step(network, rule, step)

    monkeypatch.setattr(measuring, "train_step", trained)
    measured(data, brake=brake, evaluation=None)
    assert {step.on_loss is not None for step in steps} == {brake}
