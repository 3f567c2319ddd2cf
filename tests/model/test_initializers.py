"""Initial weights: their distributions, and what they depend on."""

import math
from types import SimpleNamespace

import pytest
import torch

from widenet.model.build import build, fill
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

ROWS, COLUMNS = 300, 200


def layers_with(initializer):
    return [
        {"name": "in", "kind": "input", "field": "x"},
        {"name": "h", "units": 6, "initializer": initializer},
        {"name": "out", "kind": "output", "field": "x", "initializer": initializer},
    ]


def draw(initializer, shape=(ROWS, COLUMNS), seed=0, purpose="w", shard=0, fan=(600, 200)):
    spec = NetworkSpec.of({"layers": layers_with(initializer)}).hidden[0].initializer
    weight = torch.empty(shape)
    fill(weight, spec, *fan, seed, purpose, shard)
    return weight


def distance(sample, distribution):
    """The Kolmogorov-Smirnov distance between some numbers and a distribution function."""
    ordered = sample.flatten().double().sort().values
    below = torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float((distribution(ordered) - below).abs().max())


def uniform(limit):
    return lambda x: ((x + limit) / (2 * limit)).clamp(0, 1)


def gaussian(deviation):
    return lambda x: 0.5 * (1 + torch.erf(x / (deviation * math.sqrt(2))))


DISTRIBUTIONS = {
    "xavier": ("xavier", uniform(math.sqrt(6 / 800))),
    "xavier, scaled": ({"kind": "xavier", "scale": 3.0}, uniform(3 * math.sqrt(6 / 800))),
    "he": ("he", gaussian(math.sqrt(2 / 600))),
    "he, scaled": ({"kind": "he", "scale": 0.5}, gaussian(0.5 * math.sqrt(2 / 600))),
    "gaussian": ("gaussian", gaussian(0.01)),
    "gaussian, wide": ({"kind": "gaussian", "deviation": 2.0}, gaussian(2.0)),
    "uniform": ("uniform", uniform(0.01)),
    "uniform, wide": ({"kind": "uniform", "limit": 0.7}, uniform(0.7)),
    "uniform, one-sided": (
        {"kind": "uniform", "limit": 0.7, "low": 0.2},
        lambda x: ((x - 0.2) / 0.5).clamp(0, 1),
    ),
    "caffe_xavier": ("caffe_xavier", uniform(math.sqrt(3 / 200))),
    "caffe_xavier, scaled": ({"kind": "caffe_xavier", "scale": 2.0}, uniform(2 * math.sqrt(3 / 200))),
    "reciprocal": ("reciprocal", gaussian(1 / 600)),
    "reciprocal, scaled": ({"kind": "reciprocal", "scale": 3.0}, gaussian(3 / 600)),
    "selu": ("selu", gaussian(math.sqrt(1 / 600))),
    "selu, scaled": ({"kind": "selu", "scale": 2.0}, gaussian(2 * math.sqrt(1 / 600))),
}


@pytest.mark.parametrize(("initializer", "distribution"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_sixty_thousand_weights_are_distributed_as_documented(initializer, distribution):
    weight = draw(initializer)
    assert weight.shape == (ROWS, COLUMNS)
    assert weight.dtype == torch.float32
    assert distance(weight, distribution) < 2.2 / math.sqrt(weight.numel())


@pytest.mark.parametrize("initializer", ["xavier", "he", "gaussian", "uniform", "selu"])
def test_weights_depend_on_seed_purpose_and_shard_and_on_nothing_else(initializer):
    first = draw(initializer)
    torch.manual_seed(123)
    torch.rand(7)
    assert torch.equal(first, draw(initializer))
    for change in ({"seed": 1}, {"purpose": "v"}, {"shard": 1}):
        other = draw(initializer, **change)
        assert not torch.equal(first, other)
        assert abs(float(torch.corrcoef(torch.stack([first.flatten(), other.flatten()]))[0, 1])) < 0.02


def test_fans_are_those_of_the_whole_weight_not_of_a_shard():
    training, limit = TrainingSpec.of({"shards": 4}), math.sqrt(6 / (23 + 6))
    fields = {"x": SimpleNamespace(kind="sparse", width=23, min_value=1.0, max_value=1.0)}
    layout = bind(NetworkSpec.of({"layers": layers_with("xavier")}), training, fields)
    network = build(layout, Exchange(4), counts={})
    for name in ("h/in", "out"):
        largest = max(float(part.weight.abs().max()) for part in network.wide[name].parts.values())
        assert 0.9 * limit < largest <= limit * (1 + 1e-6)
