"""Activations against formulas written out in float64, and their slopes against torch autograd."""

import pytest
import torch

from tests.model.twin import activation as formula
from widenet.model.activations import activate
from widenet.spec.network import NetworkSpec

SINGLE = [
    "sigmoid",
    "tanh",
    "relu",
    "selu",
    "softplus",
    "softsign",
    "linear",
    "gelu",
    "silu",
    "leaky_relu",
    "elu",
]
NUMBERED = [
    {"kind": "leaky_relu", "slope": 0.3},
    {"kind": "leaky_relu", "slope": 0.0},
    {"kind": "leaky_relu", "slope": 3.0},
    {"kind": "leaky_relu", "slope": -0.5},
    {"kind": "elu", "alpha": 2.5},
    {"kind": "elu", "alpha": 0.7, "scale": 1.3},
]
ROW_WISE = ["softmax", "relu_max", "linear_max"]


def spec_of(kind):
    layers = [
        {"name": "in", "kind": "input", "field": "x"},
        {"name": "h", "units": 1, "activation": kind},
        {"name": "o", "kind": "output", "field": "x"},
    ]
    return NetworkSpec.of({"layers": layers}).hidden[0].activation


def logits(dtype=torch.float64):
    random = torch.randn(13, 11, generator=torch.Generator().manual_seed(0), dtype=dtype) * 3
    random[0, :5] = torch.tensor([0.0, -1e-3, 1e-3, 15.0, -15.0])
    random[1] = -random[1].abs()
    return random


@pytest.mark.parametrize("kind", [*SINGLE, *NUMBERED, *ROW_WISE], ids=str)
def test_the_value_is_that_of_the_documented_formula(kind):
    spec, z = spec_of(kind), logits()
    assert torch.allclose(activate(spec, z), formula(spec, z), rtol=1e-12, atol=1e-15)
    assert torch.allclose(
        activate(spec, z.float()).double(), formula(spec, z.float().double()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        ("softmax", [1000.0, 0.0], [1.0, 0.0]),
        ("relu_max", [-1.0, -2.0], [0.0, 0.0]),
        ("linear_max", [0.0, 0.0], [0.0, 0.0]),
    ],
)
def test_no_row_overflows_or_is_divided_by_nothing(kind, row, expected):
    assert activate(spec_of(kind), torch.tensor([row, row])).tolist() == [expected] * 2
