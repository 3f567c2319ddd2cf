"""Every optimizer against torch.optim in float64, on whole weights and on rows that are rarely touched."""

import numpy as np
import pytest
import torch

from tests.rows import all_rows, dense_rows
from widenet.kernels import steps
from widenet.kernels.bags import RowGradient, Touched
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.weight import Part, WideWeight
from widenet.plan.tiles import Shards, as_slice
from widenet.sparse import SparseBatch
from widenet.spec.optimizers import OptimizerSettings
from widenet.spec.training import TrainingSpec

KINDS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.8}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.7, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"eps": 1e-7}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.95, "eps": 1e-6}),
    "adadelta": (torch.optim.Adadelta, {"rho": 0.85, "eps": 1e-5}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-7}),
    "adamw": (torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.2}),
}
"""The optimizer of torch for each kind, with its settings."""

OURS = {"eps": "epsilon", "alpha": "decay", "rho": "decay"}
OURS |= {name: name for name in ("momentum", "weight_decay")}
"""What torch's settings are called in the training document."""


@pytest.fixture(autouse=True, params=["native", "torch"])
def implementation(request, monkeypatch):
    """Each test holds for the native steps and for those of torch, which take their place."""
    if request.param == "torch":
        monkeypatch.setattr(steps, "library_runs", lambda _: False)
    return request.param


def settings_of(kind):
    theirs = KINDS[kind][1]
    ours = {OURS[name]: value for name, value in theirs.items() if name in OURS}
    if "betas" in theirs:
        ours["beta1"], ours["beta2"] = theirs["betas"]
    return {"kind": kind, **ours}


def rule_of(kind, **penalties):
    return Optimizer(TrainingSpec.of({"optimizer": settings_of(kind)}).optimizer, **penalties)


def rates_of(steps):
    """A rate of its own for every step; place 0 is unused."""
    return np.concatenate([[0.0], 0.1 / (1 + 0.3 * (np.arange(steps) % 7))])


def torch_steps(kind, start, gradients, rates, l2=0.0, l1=0.0, **changes):
    """Where torch's optimizer takes a weight in float64, its coupled weight decay and a written l1
    included.
    """
    weight = start.double().clone().requires_grad_()
    make, settings = KINDS[kind][0], KINDS[kind][1] | changes
    optimizer = make([weight], lr=1.0, **(settings if kind == "adamw" else {**settings, "weight_decay": l2}))
    path = []
    for number, gradient in enumerate(gradients, 1):
        optimizer.param_groups[0]["lr"] = float(rates[number])
        weight.grad = (
            gradient.double()
            + l1 * torch.sign(weight.detach())
            + (l2 * weight.detach() if kind == "adamw" else 0)
        )
        optimizer.step()
        path.append(weight.detach().clone())
    return path


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.3), (0.05, 0.0), (0.05, 0.3)])
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_steps_at_changing_rates_are_those_of_torch(kind, l1, l2):
    start, gradients, rates = numbers(7, 5), numbers(20, 7, 5, seed=1), rates_of(20)
    expected = torch_steps(kind, start, gradients, rates, l2, l1)
    rule, weight = rule_of(kind, l1=l1, l2=l2), start.clone()
    state = rule.state_for(weight)
    for number, (gradient, after) in enumerate(zip(gradients, expected, strict=True), 1):
        rule.made(StepNumbers(number, rates)).tile(weight, gradient.clone(), state)
        assert float((weight.double() - after).abs().max()) < 3e-7 * number
    assert float((expected[-1] - start).abs().max()) > 0.001


def touched_rows(step, num_rows):
    """Which rows step `step` touches: row 0 always, row 1 never, row 2 once, the others now and then."""
    return [
        row
        for row in range(num_rows)
        if row == 0 or (row == 2 and step == 5) or (row > 2 and (step * 7 + row * 3) % 11 == 0)
    ]


def train_rows(kind, start, gradients, rates, **penalties):
    """The weight after every step touched only some rows of three shards, and after all rows were woken."""
    rule, shards = rule_of(kind, **penalties), Shards(len(start), 3)
    parts = {shard: Part(start[as_slice(shards.units(shard))].clone()) for shard in range(3)}
    weight = WideWeight(shards, parts, by_rows=True)
    weight.prepare(rule)
    for step, gradient in enumerate(gradients, 1):
        for shard in range(3):
            units = shards.units(shard)
            own = [row for row in touched_rows(step, len(start)) if row in units]
            rows_U = torch.tensor([units.index(row) for row in own], dtype=torch.int64)
            numbers = StepNumbers(step, rates)
            if rule.idle_weights_move:
                weight.catch_up(shard, rows_U, rule, numbers)
            indptr = torch.arange(len(own) + 1)
            weight.update_rows(
                shard,
                RowGradient(rows_U, indptr, torch.tensor(own, dtype=torch.int64), None, gradient),
                rule,
                numbers,
            )
    before = all_rows(weight)
    weight.catch_up_all(rule, StepNumbers(len(gradients) + 1, rates))
    return before, all_rows(weight), weight


@pytest.mark.parametrize(
    "kind", ["sgd", "sgd with l2", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta"]
)
def test_rows_rarely_touched_end_where_dense_steps_would_take_them(kind):
    kind, _, with_l2 = kind.partition(" with ")
    l2 = 0.4 if with_l2 else 0.0
    start, gradients, rates = numbers(17, 4), numbers(50, 17, 4, seed=1), rates_of(50)
    whole = torch.zeros_like(gradients)
    for step in range(1, 51):
        rows = touched_rows(step, 17)
        whole[step - 1, rows] = gradients[step - 1, rows]
    expected = torch_steps(kind, start, whole, rates, l2)[-1]
    _, found, _ = train_rows(kind, start, gradients, rates, l2=l2)
    assert float((found.double() - expected).abs().max()) < 5e-6
    assert (not torch.equal(found[1], start[1])) == bool(with_l2)


@pytest.mark.parametrize("kind", ["momentum", "nesterov"])
def test_a_long_sleep_is_as_good_as_many_steps(kind):
    rule, rates = rule_of(kind), rates_of(5000)
    slept, stepped, velocity = numbers(3, 2), numbers(3, 2), numbers(3, 2, seed=1)
    states = [{"velocity": velocity.clone()} for _ in range(2)]
    rule.idle(slept, states[0], torch.tensor([7, 4000, 4999], dtype=torch.int32), 5000, rates)
    for row, since in enumerate((7, 4000, 4999)):
        weight, state = stepped[row : row + 1].double(), {"velocity": velocity[row : row + 1].double()}
        for number in range(since + 1, 5001):
            rule.made(StepNumbers(number, rates)).tile(weight, torch.zeros(1, 2, dtype=torch.float64), state)
        assert torch.allclose(slept[row].double(), weight[0], rtol=0, atol=1e-6)
        assert torch.allclose(
            states[0]["velocity"][row].double(), state["velocity"][0], rtol=1e-6, atol=1e-30
        )


@pytest.mark.parametrize("with_values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_batch_move_as_their_summed_gradients_say(kind, with_values):
    chance = np.random.default_rng(4)
    rows = [chance.choice(40, 1 + example % 9, replace=False).tolist() for example in range(30)]
    values = [chance.standard_normal(len(row)).tolist() for row in rows] if with_values else None
    batch, gradient_EH, rates = SparseBatch.from_lists(rows, values), numbers(30, 19), rates_of(9)
    rule, one, other = rule_of(kind, l1=0.1, l2=0.2), numbers(40, 19, seed=1), numbers(40, 19, seed=1)
    state, wide = rule.state_for(one), WideWeight(Shards(40, 1), {0: Part(other)}, by_rows=True)
    wide.prepare(rule)
    touched = Touched.of(batch).by(gradient_EH)
    for number in (1, 2, 3):
        step = StepNumbers(number, rates, 0.5)
        own_state = {name: tensor[touched.features_U] for name, tensor in state.items()}
        weight = one[touched.features_U]
        rule.made(step).tile(weight, dense_rows(batch, 40).T[touched.features_U] @ gradient_EH, own_state)
        one[touched.features_U] = weight
        for name, tensor in own_state.items():
            state[name][touched.features_U] = tensor
        wide.update_rows(0, touched, rule, step)
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


BY_ROWS = {"kind": "adagrad", "per_row": True, "epsilon": 1e-4}


def by_rows(**penalties):
    return Optimizer(TrainingSpec.of({"optimizer": BY_ROWS}).optimizer, **penalties)


def vectors_of(weight, **more):
    """A weight whose rows are vectors, with its state under `by_rows`."""
    wide = WideWeight(Shards(len(weight), 1), {0: Part(weight)}, has_vectors=True, **more)
    wide.prepare(by_rows())
    assert wide.parts[0].state["square_sum"].shape == (len(weight), 1)
    return wide


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.05, 0.3)])
@pytest.mark.parametrize("columns", [1, 5, 16, 133])
def test_twenty_steps_by_rows_are_those_of_the_formula_in_float64(columns, l1, l2):
    start, gradients, rates = numbers(7, columns), numbers(20, 7, columns, seed=1), rates_of(20)
    rule, wide, exact = by_rows(l1=l1, l2=l2), vectors_of(start.clone()), start.double()
    total = torch.zeros(7, 1, dtype=torch.float64)
    for number, gradient in enumerate(gradients, 1):
        wide.update_tile(0, 0, 7, gradient.clone(), rule, StepNumbers(number, rates))
        g = gradient.double() + l1 * exact.sign() + l2 * exact
        total += (g**2).mean(dim=1, keepdim=True)
        exact -= float(rates[number]) * g / (total.sqrt() + 1e-4)
    assert float((wide.parts[0].weight.double() - exact).abs().max()) < 3e-6
    torch.testing.assert_close(wide.parts[0].state["square_sum"].double(), total, rtol=1e-5, atol=0)


def dsstne_steps(kind, start, gradients, rates, l1, l2):
    """Where DSSTNE's own formulas take a weight (its g is minus the gradient, which is turned round here),
    written out in numpy.
    """
    w, first, second = (
        array.astype(np.float64) for array in (start, np.zeros_like(start), np.zeros_like(start))
    )
    mu, mu1 = 0.9, 0.95
    for number, gradient in enumerate(gradients, 1):
        G, alpha = -gradient.astype(np.float64) - l2 * w - l1 * np.sign(w), rates[number]
        if kind == "adagrad":
            first = first + G**2
            w = w + alpha * G / np.sqrt(np.maximum(1e-9, first))
        elif kind == "rmsprop":
            first = mu * first + (1 - mu) * G**2
            w = w + alpha * G / np.sqrt(np.maximum(1e-9, first))
        elif kind == "adadelta":
            first = mu * first + (1 - mu) * G**2
            d = np.sqrt(np.maximum(1e-9, second) / np.maximum(1e-9, first)) * G
            second = mu * second + (1 - mu) * d**2
            w = w + d
        elif kind == "nesterov":
            before, first = first, mu * first + alpha * G
            w = w + first + mu * (first - before)
        else:
            t = number + 1
            first, second = mu * first + (1 - mu) * G, mu1 * second + (1 - mu1) * G**2
            w = w + alpha * (first / (1 - mu**t)) / (np.sqrt(second / (1 - mu1**t)) + 1e-8)
    return w


DSSTNE = {
    "adagrad": {},
    "rmsprop": {"decay": 0.9},
    "adadelta": {"decay": 0.9},
    "adam": {"beta1": 0.9, "beta2": 0.95},
    "nesterov": {"momentum": 0.9},
}


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-6])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (1e-5, 2e-5)])
@pytest.mark.parametrize("kind", DSSTNE)
def test_with_a_floor_and_an_offset_twenty_steps_are_those_of_dsstnes_formulas(kind, l1, l2, size):
    """size: of the gradients; the squares of small ones are below the floor."""
    rates = np.full(21, 0.1) if kind in ("nesterov", "adadelta") else rates_of(20)
    start, gradients = numbers(7, 5) * size, numbers(20, 7, 5, seed=1) * size
    expected = dsstne_steps(kind, start.numpy(), gradients.numpy(), rates, l1, l2)
    spec = TrainingSpec.of({"optimizer": {"kind": kind, **DSSTNE[kind]}}).optimizer
    spec = OptimizerSettings(floor=1e-9, step_offset=1).applied_to(spec)
    rule, weight = Optimizer(spec, l1, l2), start.clone()
    state, ours = rule.state_for(weight), rates if kind != "adadelta" else np.ones(21)
    for number, gradient in enumerate(gradients, 1):
        rule.made(StepNumbers(number, ours)).tile(weight, gradient.clone(), state)
    assert np.abs(weight.numpy() - expected).max() < 1e-5 * np.abs(expected).max()
    assert np.abs(expected - start.numpy()).max() > 1e-4 * size
