"""Drifting outputs: up to 150 steps, 500 in the long form, held against those that compute every logit, and
against the dense twin.
"""

import math
from itertools import islice

import pytest
import torch

from tests.model.twin import Real, Twin, dense_field, random_batch, snapshot, sparse
from widenet.errors import NumericsError
from widenet.model.build import build
from widenet.model.rule import StepNumbers
from widenet.model.step_random import StepRandom
from widenet.parallel.local import LocalExchange
from widenet.plan.binding import bind
from widenet.plan.deferred_rows import GRAM_WINDOWS
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.training.schedules import rates
from widenet.training.step import Step, train_step
from widenet.training.weights import settle

WIDTH, EXAMPLES = 431, 9
FIELDS = {"items": sparse(WIDTH, -1, 2), "in": sparse(23), "age": dense_field(3)}


def network(hidden=(), output=(), entry=()):
    """in -> h -> out under l2, with other settings."""
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "in", **dict(entry)},
            {"name": "h", "units": 6, "activation": "tanh", **dict(hidden)},
            {
                "name": "out",
                "kind": "output",
                "field": "items",
                "activation": "linear",
                "loss": "l2",
                **dict(output),
            },
        ]
    }


TOWERS = {
    "layers": [
        {"name": "in", "kind": "input", "field": "in", "scale": "rsqrt"},
        {"name": "age", "kind": "input", "field": "age"},
        {"name": "h", "units": 4, "source": "in", "activation": "tanh", "dropout": 0.2},
        {"name": "mix", "units": 3, "source": ["h", "age"], "activation": "sigmoid"},
        {"name": "label", "kind": "output", "field": "in", "source": "mix"},
        {
            "name": "out",
            "kind": "output",
            "field": "items",
            "source": ["mix", "h"],
            "activation": "linear",
            "loss": "l2",
            "loss_weight": 0.7,
        },
    ]
}
REPAIRED = {
    "layers": [
        {"name": "seen", "kind": "input", "field": "items", "denoise": 0.4, "scale": "rsqrt"},
        *network(output={"predict": "hidden"})["layers"][1:],
    ]
}
ON_DENSE = {
    "layers": [{"name": "age", "kind": "input", "field": "age"}, {**network()["layers"][2], "source": "age"}]
}
CASES = {
    "plain": (network(), {}, 150),
    "penalties": (network({}, {"bias_l2": 0.03}), {"l2": 0.01}, 100),
    "several sources and outputs": (TOWERS, {"shards": 8}, 60),
    "without bias": (network({}, {"bias": False}), {}, 100),
    "values ignored": (network({}, {"values": "ignore", "bias_start": 0.2}), {}, 100),
    "what denoise hid": (REPAIRED, {}, 100),
    "directly on a dense input": (ON_DENSE, {"schedule": {"kind": "inverse", "decay": 0.01}}, 100),
}


def batches(seed=1):
    """Batches without end, and what their examples count; rare items stay untouched for many steps."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows = [
            sorted({int(WIDTH * place**3) for place in torch.rand(4, generator=generator).tolist()})
            for _ in range(EXAMPLES)
        ]
        rows[1] = []
        batch = {
            "items": SparseBatch.from_lists(
                rows, [(torch.rand(len(row), generator=generator) * 3 - 1).tolist() for row in rows]
            ),
            "in": random_batch(generator, EXAMPLES, 23, 6),
            "age": torch.randn(EXAMPLES, 3, generator=generator),
        }
        yield batch, torch.rand(EXAMPLES, generator=generator) * 2


class Run:
    """Steps of a network, one after the other."""

    def __init__(self, document, training=(), learning_rate=0.1, num_threads=1):
        training = {"optimizer": {"kind": "sgd", "learning_rate": learning_rate}, **dict(training)}
        self.real = Real(document, training, FIELDS, num_threads=num_threads)
        self.network, self.made, self.rates = self.real.network, 0, rates(self.real.training, 10**4)

    def random(self):
        return StepRandom(11, 2, self.made)

    def step(self, batch, weights_E):
        self.made += 1
        prepared, numbers = (
            self.network.prepare(batch, self.random(), weights_E),
            StepNumbers(self.made, self.rates),
        )
        return train_step(self.network, self.real.rule, Step(prepared, self.random(), numbers))

    def weights(self):
        settle(self.network, self.real.rule, self.rates, self.made)
        return snapshot(self.network)

    def scores(self, batch):
        """Scores [E, width] of the output "out"."""
        with torch.no_grad():
            output = self.network.outputs["out"]
            direct_EH = self.network.direct(
                output, self.network.forward(self.network.prepare(batch, None), None)
            )
            shards = output.weight.shards
            scores_EL = torch.empty(len(direct_EH), shards.width)
            for shard in range(shards.count):
                own_ER = output.tile(shard, 0, shards.size(shard)).logits(direct_EH)
                scores_EL[:, shard :: shards.count] = own_ER
            return scores_EL


@pytest.fixture
def tiled(monkeypatch):
    """Makes runs that compute every logit."""

    def make(*arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr("widenet.model.build.defers_rows", lambda *_: False)
            run = Run(*arguments, **options)
        assert run.network.outputs["out"].deferred_rows is None
        return run

    return make


def distance(found, expected):
    """The largest difference of two sets of weights, by the largest weight."""
    return max(
        float((found[key] - weight).abs().max() / weight.abs().max()) for key, weight in expected.items()
    )


def assert_as_near_as_with_every_logit(runs, steps, tolerance):
    """Steps of two runs, the one drifting, and of the dense twin: losses and weights are its, within
    rounding.
    """
    drifting, full = runs
    assert drifting.network.outputs["out"].deferred_rows.window in range(5, 12)
    twin, weights = Twin(full.real.spec, full.network.layout.units), snapshot(full.network)
    for number, (batch, weights_E) in enumerate(steps, 1):
        losses = [run.step(batch, weights_E) for run in runs]
        loss, _, weights = twin.step(
            weights, batch, weights_E, full.random(), full.real.training, float(full.rates[number])
        )
        assert losses == [pytest.approx(loss, rel=tolerance, abs=tolerance)] * 2
    near, usual = (distance(run.weights(), weights) for run in runs)
    assert near <= max(3 * usual, tolerance)


@pytest.mark.parametrize(
    ("document", "training", "num_steps"),
    [
        *(pytest.param(*case, id=name) for name, case in CASES.items()),
        pytest.param(network(), {}, 500, id="plain, long", marks=pytest.mark.long),
        pytest.param(*CASES["penalties"][:2], 150, id="penalties, long", marks=pytest.mark.long),
        pytest.param(
            TOWERS, {"shards": 8}, 150, id="several sources and outputs, long", marks=pytest.mark.long
        ),
    ],
)
def test_steps_without_logits_are_those_of_the_dense_twin_as_nearly_as_steps_with_them(
    document, training, num_steps, tiled
):
    runs = Run(document, training), tiled(document, training)
    assert_as_near_as_with_every_logit(runs, islice(batches(), num_steps), tolerance=3e-6)
    batch, _ = next(batches(seed=2))
    assert torch.allclose(*(run.scores(batch) for run in runs), atol=1e-5)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_step_moves_what_it_asks_for_and_leaves_the_rest_to_catch_up(num_threads):
    run = Run(network(), num_threads=num_threads)
    before = snapshot(run.network)
    batch, weights_E = next(batches())
    run.step(batch, weights_E)
    asked = torch.zeros(WIDTH, dtype=torch.bool).index_fill_(0, batch["items"].indices, True)
    stored, after = snapshot(run.network), run.weights()
    for key in (("out", ""), ("out", "bias")):
        moved = (stored[key] != before[key]).reshape(-1, WIDTH).any(dim=0)
        assert moved.tolist() == asked.tolist()
        assert bool((after[key] != before[key]).reshape(-1, WIDTH).any(dim=0).all())


def test_looking_at_the_weights_twice_shows_the_same_and_a_step_follows_from_either():
    runs = [Run(network()) for _ in range(2)]
    for number, (batch, weights_E) in zip(range(30), batches(), strict=False):
        losses = [run.step(batch, weights_E) for run in runs]
        assert losses[0] == losses[1]
        if number == 16:
            first = [run.weights() for run in runs]
            assert distance(runs[0].weights(), first[0]) == 0
    assert distance(runs[0].weights(), runs[1].weights()) == 0


def test_what_the_rows_add_up_to_is_taken_anew_from_them_at_times():
    run, steps = Run(network()), batches()
    deferred_rows = run.network.outputs["out"].deferred_rows
    every = deferred_rows.window * GRAM_WINDOWS
    for _ in range(every // 2):
        run.step(*next(steps))
    deferred_rows.gram.mul_(1.01)
    while run.made < every:
        run.step(*next(steps))
    errors = []
    for _ in range(2):
        weights = run.weights()
        rows = torch.cat([weights["out", ""], weights["out", "bias"][None]])
        errors.append(
            float((deferred_rows.gram - rows @ rows.T).abs().max() / deferred_rows.gram.abs().max())
        )
        run.step(*next(steps))
    assert errors[0] > 1e-3
    assert errors[1] < 1e-6


def fixed(length):
    """One example that shows a dense vector of a length, and asks for three items."""
    return {
        "age": torch.tensor([[length, 0.0, 0.0]]),
        "items": SparseBatch.from_lists([[1, 5, 400]], [[1.0, -0.5, 2.0]]),
    }


@pytest.mark.parametrize(
    "share", [0.5, 1.0, 1.5, 1.999999], ids=lambda share: f"{share:g} of what a step may be"
)
@pytest.mark.parametrize("length", [1e-3, 1.0, 30.0])
def test_a_step_that_leaves_nothing_of_a_direction_is_exact(share, length, tiled):
    """At 1 the matrix that turns all rows has no inverse: nothing is left of what they had along the
    vector.
    """
    rate = share / (length * length + 1)
    runs = [make(ON_DENSE, learning_rate=rate) for make in (Run, tiled)]
    assert_as_near_as_with_every_logit(runs, [(fixed(length), None)] * 60, tolerance=2e-5)


def test_rows_that_grow_without_bound_grow_as_with_every_logit(tiled):
    run, full = (make(ON_DENSE, learning_rate=2.0) for make in (Run, tiled))
    losses = [(run.step(fixed(1.0), None), full.step(fixed(1.0), None)) for _ in range(40)]
    assert losses[-1][0] > 1e30
    assert all(found == pytest.approx(expected, rel=1e-4) for found, expected in losses)
    assert distance(run.weights(), full.weights()) < 1e-4


def test_what_is_too_large_for_numbers_shows_in_the_loss_and_in_the_weights():
    run = Run(ON_DENSE, learning_rate=1e12)
    with pytest.raises(
        NumericsError, match=r'got (inf|nan)\. The first number that is not finite arose in layer "out"\.$'
    ):
        [run.step(fixed(1.0), None) for _ in range(30)]
    assert run.network.first_non_finite() == "out"


@pytest.mark.parametrize("name", ["products", "gram"])
def test_what_would_break_rows_later_counts_as_broken(name):
    run = Run(network())
    assert run.network.first_non_finite() is None
    run.network.outputs["out"].deferred_rows.tensors()[name].view(-1)[0] = math.nan
    assert run.network.first_non_finite() == "out"


def test_a_network_that_only_serves_takes_no_room_for_drifting():
    built = build(
        bind(NetworkSpec.of(network()), Run(network()).real.training, FIELDS), LocalExchange(3), counts={}
    )
    assert built.outputs["out"].deferred_rows.products.numel() == 0
    assert all(not part.state for part in built.wide["out"].parts.values())
