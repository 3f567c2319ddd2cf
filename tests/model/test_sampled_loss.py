"""Sampled outputs: a step held against the dense twin of its sample, and what units stand for in the mean."""

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
from widenet.randomness import StepRandom

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
"""What the units have of a line of 160."""
WHOLE = {"items": LENGTHS**2 - 1}
EVENLY = {"kind": "popularity", "units": 20, "power": 0.5}


def test_real_draws_give_every_unit_its_mean():
    real = Real(network(EVENLY), {}, FIELDS, WHOLE)
    found = torch.stack(
        [stands_of(real.network.outputs["out"], StepRandom(1, step % 3, step)) for step in range(2000)]
    )
    error_L = found.std(dim=0) / len(found) ** 0.5
    assert float(((found.mean(dim=0) - 1) / error_L).abs().max()) < 4
    assert float(error_L.max()) < 0.07
