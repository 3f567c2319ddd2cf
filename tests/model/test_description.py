"""Described weights against torch's autograd on a dense twin, whose rows are sums of vectors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.rows import all_rows, dense_rows
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates
from widenet.training.step import settle, train_step

WIDTH, KNOWN, GENRES, UNITS, EXAMPLES, RATE = 23, 19, 5, 4, 6, 0.3
BY = ["genre", "price"]
HISTORY = {"name": "history", "kind": "input", "field": "items"}
NEXT = {"name": "next", "kind": "output", "field": "items"}
TASTE = {"name": "taste", "units": UNITS, "activation": "tanh"}


def layers(tied=False, of_input=True, of_output=True, taste=(), **settings):
    """The layers of a network whose input, output or shared weights are described."""
    taste = {**TASTE, **dict(taste), **({"described_by": BY} if of_input else {})}
    share = {"weights": {"layer": "taste", "transposed": True}} if tied else {}
    by = {"described_by": BY} if of_output and not tied else {}
    return {"layers": [HISTORY, taste, {**NEXT, **share, **by, **settings}]}


NETWORKS = {
    "an output": layers(of_input=False),
    "an input": layers(of_output=False),
    "both": layers(),
    "tied": layers(tied=True),
    "tied, by cosine": layers(tied=True, cosine={"temperature": 0.5}),
    "an output by cosine": layers(of_input=False, cosine={"temperature": 0.5}),
    "single units": layers(activation="sigmoid", loss="cross_entropy"),
    "squares": layers(of_input=False, activation="linear", loss="l2"),
    "a mean gradient": {**layers(tied=True), "shared_gradient": "mean"},
    "tied, sampled": layers(tied=True, sample={"kind": "uniform", "units": 7}),
    "an output sampled": layers(of_input=False, sample={"kind": "popularity", "units": 7}),
}


def attributes():
    """Categories and a number for all items but the fourth, which has none; items beyond 21 have none."""
    random = np.random.default_rng(5)
    rows = [sorted({int(g) for g in random.integers(0, GENRES, 2)} | {GENRES}) for _ in range(WIDTH - 2)]
    rows[3] = []
    values = [[1.0 if g < GENRES else float(np.float32(random.normal())) for g in row] for row in rows]
    return SparseBatch.from_lists(rows, values)


def batch():
    random = np.random.default_rng(6)
    return SparseBatch.from_lists(
        [sorted(random.choice(KNOWN, 3, replace=False).tolist()) for _ in range(EXAMPLES)]
    )


class Real:
    """A network with lively biases and vectors of attributes, ready to step."""

    def __init__(self, document, training=(), num_known=KNOWN, threads=1):
        self.spec = NetworkSpec.of(document)
        options = {"epochs": 1, "optimizer": {"kind": "sgd", "learning_rate": RATE}, "shards": 3}
        self.training = TrainingSpec.of(options | dict(training))
        facts = SimpleNamespace(
            kind="sparse",
            width=WIDTH,
            min_value=1.0,
            max_value=1.0,
            described={"price": 1, "genre": GENRES},
        )
        layout = bind(self.spec, self.training, {"items": facts})
        counts = np.array([WIDTH - item if item < num_known else 0 for item in range(WIDTH)])
        described = [name for name, own in layout.weights.items() if own.describes]
        self.network = build(
            layout,
            Exchange(3, threads),
            counts={"items": counts},
            attributes={layout.weights[name].describes: attributes() for name in described},
        )
        self.rule = Optimizer(self.training.optimizer, self.training.l1, self.training.l2)
        self.network.prepare_training(self.rule)
        generator = torch.Generator().manual_seed(3)
        for name in described:
            vectors = self.network.trunk[name].tensor
            description = self.network.descriptions[layout.weights[name].describes]
            description.before = vectors.detach().clone()
            with torch.no_grad():
                vectors += torch.randn(vectors.shape, generator=generator) * 0.5
            description.spread(self.network.exchange)
        for wide in self.network.wide.values():
            for part in wide.parts.values() if wide.is_bias else ():
                part.weight += torch.randn(part.weight.shape, generator=generator) * 0.3
        self.rates = rates(self.training, 100)

    def step(self, number=1):
        items = {"items": batch()}
        prepared = self.network.prepare(items, (2, 3))
        numbers = StepNumbers(number, self.rates)
        loss = train_step(self.network, self.rule, prepared, numbers)
        settle(self.network, self.rule, self.rates, number)
        return loss

    def weights(self):
        """Every weight, float64, by name."""
        wide = {name: all_rows(weight) for name, weight in self.network.wide.items()}
        trunk = {name: weight.tensor.detach() for name, weight in self.network.trunk.items()}
        return {name: tensor.double().clone() for name, tensor in (wide | trunk).items()}


def twin_loss(spec, weights, num_known, stands=None):
    """The loss of the batch by dense formulas; `weights` are those of the real network, by name."""
    x = dense_rows(batch(), WIDTH).double()
    h = torch.tanh(x @ weights["taste/history"] + weights["taste bias"])
    output = spec.outputs[0]
    rows = weights["taste/history" if output.weights else "next"][:num_known]
    if output.cosine is not None:
        h = h / h.norm(dim=1, keepdim=True) / output.cosine.temperature
        rows = rows / rows.norm(dim=1, keepdim=True)
    z, t = h @ rows.T, x[:, :num_known]
    if output.bias:
        z = z + weights["next bias"][:num_known]
    if output.activation.kind == "linear":
        return (0.5 * (z - t) ** 2).sum() / EXAMPLES
    if output.activation.kind == "sigmoid":
        return torch.nn.functional.binary_cross_entropy_with_logits(z, t, reduction="sum") / EXAMPLES
    if stands is not None:
        z = torch.where(t > 0, z, z + stands.clamp_min(1e-250).log())
    return -(t / t.sum(dim=1, keepdim=True) * torch.log_softmax(z, dim=1)).sum() / EXAMPLES


def stands_of(network, random):
    """How many units each unit of a sample represents, float64; None without a sample."""
    output = network.outputs["next"]
    if output.sampler is None:
        return None
    points, shards = output.sampler.points(random), output.known
    found = torch.zeros(shards.width, dtype=torch.float64)
    for shard in output.weight.parts:
        units_U, stands_U = output.sampler.drawn(shard, points)
        found[torch.tensor(shards.units(shard))[units_U]] = stands_U.double()
    return found


def expected_step(real):
    """The loss, and every weight after a step of plain descent of own vectors and of those of attributes."""
    x, before = dense_rows(attributes(), GENRES + 1).double(), real.weights()
    x = torch.cat([x, x.new_zeros(2, GENRES + 1)])
    described = {
        name: real.network.layout.weights[name].describes for name in before if "description" in name
    }
    leaves = {name: weight.clone().requires_grad_() for name, weight in before.items()}
    own = {name: (before[name] - x @ before[vectors]).requires_grad_() for vectors, name in described.items()}
    rows = {name: own[name] + x @ leaves[vectors] for vectors, name in described.items()}
    num_known = real.network.outputs["next"].known.width
    loss = twin_loss(
        real.spec, leaves | rows, num_known, stands_of(real.network, StepRandom(real.training.seed, 2, 3))
    )
    loss.backward()
    leaves |= own
    # The mean over two users of a shared weight halves the gradients to both kinds of vectors.
    halved = {*described, *described.values()} if real.spec.shared_gradient == "mean" else set()
    gradients = {name: leaf.grad / (2 if name in halved else 1) for name, leaf in leaves.items()}
    if (limit := real.training.gradient_norm_limit) is not None:
        length = sum(rows_gradient.square().sum() for rows_gradient in gradients.values()).sqrt()
        gradients = {name: gradient * min(1.0, limit / float(length)) for name, gradient in gradients.items()}
    after = {name: leaf.detach() - RATE * gradients[name] for name, leaf in leaves.items()}
    for vectors, name in described.items():
        after[name] = after[name] + x @ after[vectors]
    if "next bias" in after and num_known < WIDTH:
        after["next bias"][num_known:] = after["next bias"][:num_known].min()
    return float(loss.detach()), after


@pytest.mark.parametrize("limit", [None, 0.2])
@pytest.mark.parametrize("which", NETWORKS)
def test_a_step_is_that_of_the_dense_twin(which, limit):
    real = Real(NETWORKS[which], {} if limit is None else {"gradient_norm_limit": limit})
    loss, after = expected_step(real)
    assert real.step() == pytest.approx(loss, rel=1e-5)
    found = real.weights()
    assert found.keys() == after.keys()
    for name, expected in after.items():
        torch.testing.assert_close(found[name], expected, atol=3e-6, rtol=1e-5)


@pytest.mark.parametrize("which", ["both", "tied, by cosine", "tied, sampled"])
def test_threads_move_no_bit(which):
    alone, together = Real(NETWORKS[which]), Real(NETWORKS[which], threads=3)
    for number in (1, 2, 3):
        assert alone.step(number) == together.step(number)
    for name, weight in alone.weights().items():
        assert torch.equal(weight, together.weights()[name]), name


def test_rows_of_items_without_interactions_are_sums_of_their_attributes_for_ever():
    real = Real(NETWORKS["tied"], {"optimizer": {"kind": "adam", "learning_rate": 0.05}})
    x = dense_rows(attributes(), GENRES + 1).double()
    start = real.weights()["taste/history description"]
    for number in range(1, 6):
        real.step(number)
    weights = real.weights()
    vectors, rows = weights["taste/history description"], weights["taste/history"]
    assert float((vectors - start).abs().min(dim=1).values.max()) > 0.01
    torch.testing.assert_close(rows[KNOWN : WIDTH - 2], (x @ vectors)[KNOWN:], atol=1e-5, rtol=1e-5)
    assert not rows[WIDTH - 2 :].any()
    assert float((rows[:KNOWN] - (x @ vectors)[:KNOWN]).abs().min(dim=1).values.min()) > 0


@pytest.mark.parametrize("which", ["tied", "an output sampled"])
def test_biases_of_items_without_interactions_are_the_smallest_of_the_others(which):
    real = Real(NETWORKS[which])
    real.step()
    bias = real.weights()["next bias"]
    assert bias[KNOWN:].tolist() == [float(bias[:KNOWN].min())] * (WIDTH - KNOWN)
    before = real.weights()["next bias"]
    real.step(2)
    assert not torch.equal(real.weights()["next bias"][KNOWN:], before[KNOWN:])


def test_vectors_of_attributes_start_with_zeros_and_change_no_first_weight():
    plain = Real(
        {"layers": [{k: v for k, v in each.items() if k != "described_by"} for each in layers()["layers"]]}
    )
    layout = Real(layers()).network.layout
    network = build(layout, Exchange(3), counts={"items": np.ones(WIDTH, dtype=np.int64)})
    assert not network.trunk["next description"].tensor.any()
    for name in ("next", "taste/history"):
        assert torch.equal(all_rows(network.wide[name]), plain.weights()[name].float())
