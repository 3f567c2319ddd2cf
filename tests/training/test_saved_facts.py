"""What a run's checkpoints hold beside their tensors, in every version of it."""

import json

import pytest

from widenet.errors import CheckpointError
from widenet.training.arithmetic import UNCOUNTED
from widenet.training.saved_facts import TrainingFacts, WeightsFacts, facts_of
from widenet.training.state import Brake, LoopState

EARLY = {"state": {"epoch": 2, "step": 1}, "examples": "a digest", "steps_per_epoch": 7}


def test_facts_are_read_as_they_were_written():
    state = LoopState(epoch=1, step=3, best=0.5, brake=Brake(seen=4, shortened=[2]), arithmetic=[1, 2])
    environment = {"device": "cpu", "compiled code": "by Numba", "torch": "2"}
    facts = TrainingFacts(state, "a digest", 7, environment, {"network.json": "another"})
    assert facts_of(json.loads(json.dumps(facts.to_json()))) == facts
    assert (facts.device, facts.is_compiled) == ("cpu", True)


def test_the_earliest_checkpoints_say_neither_device_nor_documents():
    facts = facts_of(EARLY)
    assert isinstance(facts, TrainingFacts)
    assert facts.state == LoopState(epoch=2, step=1, arithmetic=[UNCOUNTED])
    assert (facts.device, facts.is_compiled, facts.documents, facts.environment) == (None, None, None, {})


@pytest.mark.parametrize("compiled", [True, False])
def test_version_1_names_device_and_compiler_beside_the_environment(compiled):
    facts = TrainingFacts.of({**EARLY, "device": "cuda", "compiled": compiled, "environment": {"torch": "2"}})
    assert (facts.device, facts.is_compiled, facts.environment["torch"]) == ("cuda", compiled, "2")


def test_weights_alone_say_what_they_have():
    assert facts_of({"epochs": 3, "loss": 0.1}) == WeightsFacts(epochs=3)
    assert facts_of({"epoch": 2, "metrics": {"mrr@3": 0.5}}).epoch == 2


def test_facts_of_a_later_widenet_are_refused():
    with pytest.raises(CheckpointError, match="must have facts of version 2 or less; got 3"):
        TrainingFacts.of({**EARLY, "version": 3})
