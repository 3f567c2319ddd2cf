"""Hidden layers: the sparseness penalty against its formula, and dropout."""

import math

import pytest
import torch

from tests.model.flows import flow
from widenet.model.layers.hidden import forward, penalty
from widenet.randomness import StepRandom
from widenet.spec.layers import HiddenLayer
from widenet.spec.parts import Sparseness


def layer(**settings):
    return HiddenLayer(name="h", units=3, **settings)


def computed(spec, *sums, bias=None, random=None):
    """A layer's units of some sums, and its penalties."""
    read = flow(spec, {} if bias is None else {"bias": bias}, (3,), sums=list(sums), random=random)
    return forward(spec, read), read.penalties


def sparseness(a_EH, target, weight):
    return penalty(Sparseness(target=target, weight=weight), a_EH)


@pytest.mark.parametrize(("target", "weight"), [(0.15, 2.0), (0.5, 0.1), (0.9, 7.0)])
def test_the_penalty_and_its_gradient_are_those_of_the_divergence(target, weight):
    a_EH = torch.rand(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.8 + 0.1
    a_EH.requires_grad_()
    (gradient,) = torch.autograd.grad(sparseness(a_EH, target, weight), a_EH)
    found = float(sparseness(a_EH.detach(), target, weight))
    means = [sum(float(a) for a in column) / 7 for column in a_EH.detach().T]
    by_hand = weight * sum(
        target * math.log(target / m) + (1 - target) * math.log((1 - target) / (1 - m)) for m in means
    )
    assert found == pytest.approx(by_hand, rel=1e-12)
    for unit, mean in enumerate(means):
        slope = weight * (-target / mean + (1 - target) / (1 - mean)) / 7
        assert gradient[:, unit].tolist() == pytest.approx([slope] * 7, rel=1e-12)


def test_the_penalty_is_zero_where_the_mean_is_the_target():
    assert float(sparseness(torch.full((4, 3), 0.25), 0.25, 2.0)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_penalty_of_units_all_off_or_all_on_is_finite(value):
    assert math.isfinite(float(sparseness(torch.full((4, 3), value), 0.25, 2.0)))


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


def test_sums_and_bias_add_up_before_the_activation():
    spec = layer(activation={"kind": "linear"})
    bias = torch.tensor([1.0, 2.0, 3.0])
    value_EH, _ = computed(spec, torch.ones(2, 3), 2 * torch.ones(2, 3), bias=bias)
    assert value_EH.tolist() == [[4.0, 5.0, 6.0]] * 2
