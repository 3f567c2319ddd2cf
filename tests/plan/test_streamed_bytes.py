"""The bytes that a step moves: those that the sweeps of a training read and write."""

from threading import Lock

import pytest

from tests.runs.test_place_of_weights import MORE
from tests.trainings import SETTINGS, books
from widenet.data.dataset import Dataset
from widenet.model.storage import Scratch
from widenet.plan.binding import bind
from widenet.plan.layout import Job
from widenet.plan.memory import streamed_bytes
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import loop

WIDTH, EXAMPLES = 3 * 1024, 20
"""Features: a shard's rows are whole pages."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=EXAMPLES, width=WIDTH, titles=None)


@pytest.fixture
def moved(monkeypatch):
    """The bytes that the steps of trainings read and write by sweeps, and the number of steps."""
    counts, step, inside = {"read": 0, "written": 0, "steps": 0}, loop.train_step, []
    move, counting = Scratch.move, Lock()  # threads read and write

    def moving(file, descriptor, writes, address, place, size):
        with counting:
            counts["written" if writes else "read"] += size * (descriptor == file.direct) * len(inside)
        move(file, descriptor, writes, address, place, size)

    def stepped(*arguments):
        inside.append(True)
        counts["steps"] += 1
        try:
            return step(*arguments)
        finally:
            inside.clear()

    monkeypatch.setattr(Scratch, "move", moving)
    monkeypatch.setattr(loop, "train_step", stepped)
    return counts


CASES = {name: SETTINGS[name] for name in ("sgd, l2", "nesterov", "adam, tied")} | {
    name: MORE[name] for name in ("adam, cosine", "adam, linear_max", "rmsprop, two outputs")
}
CASES["rmsprop, sigmoid with limited rows"] = (
    {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": 8, "activation": "tanh"},
            {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid", "weight_norm": 0.5},
        ]
    },
    {"optimizer": "rmsprop", "batch_size": 5},
)


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_read_and_written_about_as_often_as_the_plan_says(name, data, moved, tmp_path):
    network, training = CASES[name]
    training = {**training, "epochs": 1, "evaluation": None, "keep": "last"}
    train(network, training, data, tmp_path / "run", weights_in="disk")
    dataset = Dataset.open(data.path)
    spec, settings = NetworkSpec.of(network), TrainingSpec.of(training)
    job = Job(bind(spec, settings, dataset.manifest.fields), {"items": 0.0}, EXAMPLES, weights_in="disk")
    assert moved["steps"] == EXAMPLES // 5
    read, written = streamed_bytes(job, 0)
    assert moved["written"] == written * moved["steps"] > 0
    assert read * moved["steps"] == pytest.approx(moved["read"], rel=0.25)
