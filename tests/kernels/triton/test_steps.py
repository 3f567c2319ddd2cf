"""Every optimizer's step in Triton against its formula in torch, in float32 and in float64."""

import numpy as np
import pytest
import torch

from tests.rows import dense_rows
from widenet.kernels import steps
from widenet.kernels.bags import RowGradient, Touched
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.sparse import SparseBatch
from widenet.spec.optimizers import OptimizerSettings
from widenet.spec.training import TrainingSpec

KINDS = tuple(steps.KINDS)
PENALTIES = {"plain": {}, "penalties": {"l1": 0.01, "l2": 0.02}, "guarded": {"floor": 1e-9, "step_offset": 1}}
"""Penalties, and settings of those optimizers that have them."""
RATES = np.concatenate([[0.0], 0.1 / (1 + np.arange(9.0))])


def rule_of(kind, l1=0.0, l2=0.0, **settings):
    spec = OptimizerSettings(**settings).applied_to(TrainingSpec.of({"optimizer": kind}).optimizer)
    return Optimizer(spec, l1, l2)


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def started(rule, weight):
    """A weight in the middle of a training: copies of it, and of its state, none of it below zero."""
    state = {name: numbers(*weight.shape, seed=5 + place).abs() for place, name in enumerate(rule.state)}
    return weight.clone(), {name: tensor.to(weight) for name, tensor in state.items()}


def near(found, plain, exact):
    """Whether numbers are as near to the truth as plain float32 ones are, but for one rounding of what
    went into them.
    """
    worst = (plain - exact).abs().max() if plain.numel() else 0.0
    return bool(((found.cpu() - exact).abs() <= worst + 2.0**-22 * (1 + exact.abs())).all())


@pytest.fixture
def triton(monkeypatch):
    """Turns the steps over to Triton; until then they are torch's."""
    monkeypatch.setattr(steps, "library_runs", lambda _: False)
    monkeypatch.setattr(steps, "triton_runs", lambda _: False)
    return lambda: monkeypatch.setattr(steps, "triton_runs", lambda _: True)


@pytest.mark.parametrize("shape", [(0, 4), (1031,)], ids=str)
@pytest.mark.parametrize("penalties", PENALTIES.values(), ids=PENALTIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_a_whole_weight_is_that_of_the_formula(kind, penalties, shape, device, triton):
    rule, step = rule_of(kind, **penalties), StepNumbers(3, RATES, gradient_scale=0.7)
    weight, gradient, found = numbers(*shape), numbers(*shape, seed=1), []
    for dtype in (torch.float32, torch.float64):
        found.append(started(rule, weight.to(dtype)))
        rule.made(step).tile(found[-1][0], gradient.to(dtype), found[-1][1])
    triton()
    for _ in range(2):
        found.append(started(rule, weight.to(device)))
        rule.made(step).tile(found[-1][0], gradient.to(device), found[-1][1])
    (plain, plain_state), (exact, exact_state), (ours, state), (again, _) = found
    assert near(ours, plain, exact)
    assert all(near(state[name], plain_state[name], exact_state[name]) for name in state)
    assert torch.equal(ours, again)
    assert not weight.numel() or not torch.equal(ours.cpu(), weight)


ROWS = {
    "prime sizes": [[(7 * e + 11 * i) % 31 for i in range(e % 5)] for e in range(13)],
    "only empty rows": [[], []],
    "no examples": [],
}


CASES = [(kind, "penalties", "prime sizes", 7) for kind in KINDS]
CASES += [("adadelta", "plain", "prime sizes", 131), *(("adadelta", "plain", rows, 1) for rows in ROWS)]


@pytest.mark.parametrize(("kind", "penalties", "rows", "columns"), CASES)
def test_a_step_of_touched_rows_is_that_of_the_formula_and_leaves_the_others(
    kind, penalties, rows, columns, device, triton
):
    rule, step = rule_of(kind, **PENALTIES[penalties]), StepNumbers(7, RATES)
    batch = SparseBatch.from_lists(ROWS[rows])
    batch = batch.with_values(numbers(batch.num_entries, seed=3)) if columns > 1 else batch
    weight, gradient = numbers(31, columns), numbers(batch.num_examples, columns, seed=1)
    since, found = (torch.arange(31) % 6).int(), []
    places = [(torch.float32, "cpu"), (torch.float64, "cpu"), *[(torch.float32, device)] * 2]
    for dtype, place in places:
        if len(found) == 2:
            triton()
        own = started(rule, weight.to(place, dtype))
        touched = Touched.of(batch.to(place)).by(gradient.to(place))
        if dtype == torch.float64:
            touched = RowGradient.of_rows(
                touched.features_U, (dense_rows(batch, 31).double().T @ gradient.double())[touched.features_U]
            )
        moved = since.to(place, copy=True)
        rule.apply_to_rows(own[0], touched, own[1], moved, step)
        assert torch.equal(moved.cpu(), since.index_fill(0, touched.features_U.cpu(), step.number))
        found.append(own)
    (plain, plain_state), (exact, exact_state), (ours, state), (again, _) = found
    assert near(ours, plain, exact)
    assert all(near(state[name], plain_state[name], exact_state[name]) for name in state)
    assert torch.equal(ours, again)
    others = torch.ones(31, dtype=torch.bool).index_fill(0, batch.indices, False)
    assert torch.equal(ours.cpu()[others], weight[others])
    assert bool(others.all()) or not torch.equal(ours.cpu()[~others], weight[~others])


@pytest.mark.parametrize("shape", [(5, 7), (5,)], ids=["weight", "biases"])
def test_rows_of_several_shards_are_stepped_where_they_lie(shape, device, triton):
    rule, step = rule_of("adam"), StepNumbers(3, RATES)
    weight, state = started(rule, numbers(3, *shape).to(device))
    gradient = numbers(3, 4, *shape[1:], seed=1).to(device)
    expected = {name: own.clone() for name, own in {"weight": weight, **state}.items()}
    triton()
    for place in range(3):
        own = {name: tensor[place, 1:] for name, tensor in expected.items()}
        rule.made(step).tile(own.pop("weight"), gradient[place].clone(), own)
    rule.made(step).tile(weight[:, 1:], gradient, {name: own[:, 1:] for name, own in state.items()})
    assert torch.equal(weight, expected.pop("weight"))
    assert all(torch.equal(state[name], own) for name, own in expected.items())
