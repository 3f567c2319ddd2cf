"""Hidden layers outside training, and the share of units that dropout takes."""

import pytest
import torch

from tests.model.flows import flow
from widenet.model.layers.hidden import forward
from widenet.randomness import StepRandom
from widenet.spec.layers import HiddenLayer
from widenet.spec.parts import Sparseness


def layer(**settings):
    return HiddenLayer(name="h", units=3, **settings)


def computed(spec, sums, random=None):
    """A layer's units of some sums, and its penalties."""
    read = flow(spec, {}, (3,), sums=[sums], random=random)
    return forward(spec, read), read.penalties


def test_outside_training_there_is_neither_penalty_nor_dropout():
    spec = layer(dropout=0.5, sparseness=Sparseness(), bias=False)
    value_EH, penalties = computed(spec, torch.zeros(6, 3))
    assert penalties == []
    assert torch.equal(value_EH, torch.full((6, 3), 0.5))


def test_dropout_zeroes_the_asked_share_and_rescales_the_rest_after_the_penalty():
    spec = layer(dropout=0.2, sparseness=Sparseness(target=0.5), bias=False)
    value_EH, (pull,) = computed(spec, torch.zeros(5000, 3), random=StepRandom(1, 2, 3))
    assert sorted(set(value_EH.flatten().tolist())) == pytest.approx([0.0, 0.625])
    assert float((value_EH == 0).float().mean()) == pytest.approx(0.2, abs=0.02)
    assert float(pull) == pytest.approx(0.0, abs=1e-6)
