"""Sampled outputs: a step held against the dense twin of its sample; in the mean, the step of all units."""

import numpy as np
import pytest
import torch

from tests.model.twin import (
    Real,
    assert_step_matches_twin,
    dense_field,
    random_batch,
    sparse,
    stands_of,
)
from widenet.model.optimizers import StepNumbers
from widenet.model.wide_loss import gradients_of_rows, sampled
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch

WIDTH, EXAMPLES = 61, 9
COUNTS = {"items": np.arange(WIDTH)[::-1] ** 2}
FIELDS = {"items": sparse(WIDTH, 0, 1), "wishes": sparse(WIDTH), "age": dense_field(3)}
UNIFORM, POPULAR = {"kind": "uniform", "units": 20}, {"kind": "popularity", "units": 20}
ALL = {"kind": "uniform", "units": WIDTH}
PAIRS = [
    ("cross_entropy", "softmax"),
    ({"kind": "cross_entropy", "targets": "sum"}, "softmax"),
    ({"kind": "scaled_marginal_cross_entropy", "one_target": 0.05, "one_scale": 1.5}, "softmax"),
    ("cross_entropy", "sigmoid"),
    ({"kind": "data_scaled_marginal_cross_entropy", "one_target": 0.6, "zero_target": 0.4}, "sigmoid"),
    ("l2", "linear"),
    ("l1", "tanh"),
    ("hinge", "linear"),
]


def network(sample, output=(), hidden=(), entry=()):
    """in -> h -> out over the field "items"."""
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", **dict(entry)},
            {"name": "h", "units": 6, "activation": "tanh", **dict(hidden)},
            {"name": "out", "kind": "output", "field": "items", "sample": sample, **dict(output)},
        ]
    }


def batch(values=True, seed=3):
    """A batch without duplicates, a stored zero in it; the second example is empty."""
    generator = torch.Generator().manual_seed(seed)
    found = random_batch(
        generator,
        EXAMPLES,
        WIDTH,
        7,
        (lambda n: 0.1 + 0.9 * torch.rand(n, generator=generator)) if values else None,
    )
    if values:
        found.values[0] = 0.0
    return {
        "items": found,
        "wishes": random_batch(generator, EXAMPLES, WIDTH, 4),
        "age": torch.randn(EXAMPLES, 3, generator=generator),
    }


def name_of(part):
    return part["kind"] if isinstance(part, dict) else None


@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize(
    "sample",
    [UNIFORM, POPULAR, ALL, {"kind": "uniform", "units": 1}],
    ids=lambda sample: f"{sample['kind']} {sample['units']}",
)
@pytest.mark.parametrize(("loss", "activation"), PAIRS, ids=name_of)
def test_a_step_is_that_of_the_dense_twin_in_which_the_sample_stands_for_all(
    loss, activation, sample, values
):
    document = network(sample, {"loss": loss, "activation": activation})
    real, _ = assert_step_matches_twin(
        document, FIELDS, batch(values), {"shards": 8}, torch.linspace(0.2, 2, EXAMPLES), COUNTS
    )
    if sample is ALL:
        assert stands_of(real.network.outputs["out"], real.random).tolist() == [1.0] * WIDTH


TIED = {"weights": {"layer": "h", "transposed": True}}
SHAPES = {
    "tied": network(UNIFORM, TIED),
    "tied the other way round": network(POPULAR, {}, {"weights": {"layer": "out", "transposed": True}}),
    "cosine, tied, without bias": network(POPULAR, {"cosine": {"temperature": 0.5}, "bias": False, **TIED}),
    "room for units to come": network(POPULAR, {"units": 80, "activation": "sigmoid"}),
    "what denoise hid": network(UNIFORM, {"predict": "hidden"}, {}, {"denoise": 0.4, "values": "ignore"}),
    "beside an output of all units that shares the weight": {
        "layers": [
            *network(UNIFORM)["layers"],
            {
                "name": "all",
                "kind": "output",
                "field": "wishes",
                "source": "h",
                "activation": "sigmoid",
                "weights": {"layer": "out"},
            },
        ]
    },
    "two samples of one weight": {
        "layers": [
            *network(UNIFORM)["layers"],
            {
                "name": "wish",
                "kind": "output",
                "field": "wishes",
                "source": "h",
                "sample": POPULAR,
                "weights": {"layer": "out"},
            },
        ]
    },
}
TRAININGS = {
    "no penalty": {},
    "l2": {"l2": 0.3},
    "a tight norm limit": {"gradient_norm_limit": 0.05},
    "l2 and a limit": {"l2": 0.1, "gradient_norm_limit": 0.3},
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("document", SHAPES.values(), ids=SHAPES)
def test_a_step_of_every_shape_of_network_is_that_of_the_dense_twin(document, training):
    counts = {"items": COUNTS["items"], "wishes": np.ones(WIDTH)}
    assert_step_matches_twin(document, FIELDS, batch(values=False), training, counts=counts)


LENGTHS = np.array([4] * 19 + [3] * 21 + [1] * 21)
"""What the units have of a line of 160. Of 20 draws each has a piece of 8, so that 8 steps put a point
into every part of length 1.
"""
WHOLE = {"items": LENGTHS**2 - 1}
EVENLY = {"kind": "popularity", "units": 20, "power": 0.5}


class Evenly:
    """Draws whose points all stand at the same place of their pieces."""

    def __init__(self, place):
        self.place = place

    def stratified(self, _, num):
        return (np.arange(num) + self.place) / num


def everywhere(num):
    """Draws whose points, all together, stand evenly on the line.

    So their mean is that over all draws, where units add up.
    """
    return [Evenly((place + 0.5) / num) for place in range(num)]


def steps(sample, output, asked, many_draws):
    """What every draws give at one place: the loss, and gradients to the hidden vectors, weights and
    biases, one after the other.
    """
    real = Real(network(sample, output), {}, FIELDS, WHOLE)
    out, num = real.network.outputs["out"], asked.num_examples
    direct_EH, weight_E = (
        torch.randn(num, 6, generator=torch.Generator().manual_seed(1)),
        torch.full((num,), 1 / num),
    )
    found = []
    for random in many_draws:
        choice = out.sampler.choice(asked, random)
        passes = sampled(out, direct_EH, choice, weight_E, real.rule, StepNumbers(1, real.rates))
        total, gradient_EH = passes.start(None)()
        rows_of_weight, rows_of_bias = gradients_of_rows(passes, choice.units)
        weight_LH, bias_L = torch.zeros(WIDTH, 6), torch.zeros(WIDTH)
        for shard, touched in rows_of_weight.items():
            units_U = torch.tensor(out.weight.shards.units(shard))[touched.features_U]
            weight_LH[units_U], bias_L[units_U] = touched.rows(), rows_of_bias[shard].rows()[:, 0]
        found.append(torch.cat([total[None], gradient_EH.flatten(), weight_LH.flatten(), bias_L]).double())
    return torch.stack(found)


@pytest.mark.parametrize(("sample", "num"), [(UNIFORM, WIDTH), (EVENLY, 8)], ids=["uniform", "popularity"])
@pytest.mark.parametrize(
    ("loss", "activation"), [pair for pair in PAIRS if pair[1] != "softmax"], ids=name_of
)
def test_in_the_mean_loss_and_gradients_of_single_units_are_those_of_all(loss, activation, sample, num):
    output, asked = {"loss": loss, "activation": activation}, batch()["items"]
    whole = steps(ALL, output, asked, everywhere(1))[0]
    found = steps(sample, output, asked, everywhere(num))
    assert float((found.mean(dim=0) - whole).abs().max()) < 1e-6 * float(whole.abs().max())
    assert float((found[0] - whole).abs().max()) > 0.01 * float(whole.abs().max())


@pytest.mark.parametrize(("sample", "num"), [(UNIFORM, WIDTH), (EVENLY, 8)], ids=["uniform", "popularity"])
def test_in_the_mean_what_a_softmax_divides_by_is_that_of_all(sample, num):
    asked = SparseBatch.from_lists([[7]])
    whole, found = steps(ALL, {}, asked, everywhere(1)), steps(sample, {}, asked, everywhere(num))
    assert float(found[:, 0].exp().mean()) == pytest.approx(float(whole[0, 0].exp()), rel=1e-6)
    assert float(found[:, 0].std()) > 0.01


def test_real_draws_give_every_unit_its_mean():
    real = Real(network(EVENLY), {}, FIELDS, WHOLE)
    found = torch.stack(
        [stands_of(real.network.outputs["out"], StepRandom(1, step % 3, step)) for step in range(2000)]
    )
    error_L = found.std(dim=0) / len(found) ** 0.5
    assert float(((found.mean(dim=0) - 1) / error_L).abs().max()) < 4
    assert float(error_L.max()) < 0.07
