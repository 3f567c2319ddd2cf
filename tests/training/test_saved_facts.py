"""The facts that a run's checkpoints hold beside their tensors."""

from dataclasses import asdict

import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError
from widenet.training.run_directory import TrainingFacts
from widenet.training.state import LoopState

FACTS = TrainingFacts(
    LoopState(epoch=1, step=3, best=0.5),
    "a digest",
    7,
    {"device": "cpu", "compiled code": "by the library", "torch": "2"},
    {"network.json": "another"},
)


@pytest.mark.parametrize("version", [None, 1, 2])
def test_facts_of_another_version_are_refused(version):
    with mistake(CheckpointError):
        TrainingFacts.of({**asdict(FACTS), "version": version})
