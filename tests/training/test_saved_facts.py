"""The facts that a run's checkpoints hold beside their tensors."""

import json
from dataclasses import asdict

import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError
from widenet.training.run_directory import TrainingFacts, WeightsFacts
from widenet.training.state import LoopState

FACTS = TrainingFacts(
    LoopState(epoch=1, step=3, best=0.5),
    "a digest",
    7,
    {"device": "cpu", "compiled code": "by the library", "torch": "2"},
    {"network.json": "another"},
)


def test_facts_are_read_as_they_were_written():
    assert TrainingFacts.of(json.loads(json.dumps(asdict(FACTS)))) == FACTS


def test_weights_alone_say_what_they_have():
    assert WeightsFacts.of({"epochs": 3, "loss": 0.1}) == WeightsFacts(epochs=3)
    assert WeightsFacts.of({"epoch": 2, "metrics": {"mrr@3": 0.5}}).epoch == 2


@pytest.mark.parametrize("version", [None, 1, 2])
def test_facts_of_another_version_are_refused(version):
    with mistake(CheckpointError):
        TrainingFacts.of({**asdict(FACTS), "version": version})
