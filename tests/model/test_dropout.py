"""Dropout, against the formulas written out number by number."""

import math

import pytest
import torch

from widenet.model.activations import at_rest
from widenet.model.layers.hidden import penalty
from widenet.spec.network import NetworkSpec
from widenet.spec.parts import Sparseness

P = 0.3
NUMBERS = [-2.5, -0.7, -0.01, 0.0, 0.02, 0.4, 1.9]
STEEP = {"kind": "leaky_relu", "slope": 3.0}
RESTING = [
    "sigmoid",
    "tanh",
    "relu",
    "linear",
    "leaky_relu",
    STEEP,
    "elu",
    "selu",
    {"kind": "elu", "alpha": 1.3, "scale": 1.2},
]


def layer(activation, **more):
    document = {
        "layers": [
            {"name": "in", "kind": "input", "field": "x"},
            {"name": "h", "units": 7, "activation": activation, **more},
            {"name": "out", "kind": "output", "field": "x"},
        ],
    }
    return NetworkSpec.of(document).hidden[0]


def rested(activation, x, kept):
    """A unit after dropout and the slope that the way back takes, as DSSTNE's reference has them, in
    double precision.
    """
    s = 1 / (1 - P)
    match activation:
        case "sigmoid":
            unit = 1 / (1 + math.exp(-x)) if kept else 0.5
            return unit, unit * (1 - unit)
        case "tanh":
            unit = s * math.tanh(x) if kept else 0.0
            return unit, s * (1 - (unit / s) ** 2)
        case "relu":
            unit = s * max(x, 0) if kept else 0.0
            return unit, float(unit > 0)
        case "linear":
            return (s * x if kept else 0.0), 1.0
        case "leaky_relu":
            unit = s * max(x, 0.01 * x) if kept else 0.0
            return unit, 1.0 if unit > 0 else 0.01
    if activation == STEEP:
        unit = s * max(x, 3 * x) if kept else 0.0
        return unit, 3.0 if unit > 0 else 1.0
    alpha, scale = {"elu": (1.0, 1.0), "selu": (1.6732632423543772, 1.0507009873554805)}.get(
        str(activation), (1.3, 1.2)
    )
    floor, q = -scale * alpha, 1 - P
    a = 1 / math.sqrt(q + floor * floor * P * q)
    b = -a * P * floor
    unit = a * ((scale * x if x > 0 else scale * alpha * (math.exp(x) - 1)) if kept else floor) + b
    return unit, scale if unit > 0 else unit + scale * alpha


@pytest.mark.parametrize("activation", RESTING, ids=str)
@pytest.mark.parametrize("kept", [True, False])
def test_at_rest_unit_and_slope_are_those_of_dsstnes_formulas(activation, kept):
    z_EH = torch.tensor([NUMBERS], dtype=torch.float64, requires_grad=True)
    found_EH = at_rest(layer(activation).activation, z_EH, torch.full((1, 7), kept), P)
    found_EH.sum().backward()
    for position, x in enumerate(NUMBERS):
        unit, slope = rested(activation, x, kept)
        assert found_EH[0, position].item() == pytest.approx(unit, rel=1e-12, abs=1e-12)
        assert z_EH.grad[0, position].item() == pytest.approx(slope, rel=1e-12, abs=1e-12)


def test_at_rest_an_infinite_sum_has_a_unit_like_a_large_one():
    z_EH = torch.tensor([[-math.inf, -1e4, 1e4, math.inf]])
    for activation in ("sigmoid", "tanh"):
        low, like_low, like_high, high = at_rest(layer(activation).activation, z_EH, z_EH == z_EH, P)[0]
        assert (low, high) == (like_low, like_high)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 4.0])
def test_the_penalty_pulls_from_beyond_its_floor_if_it_is_told_to(value):
    target, weight, floor = 0.2, 2.0, 1e-6
    for pull_outside in (True, False):
        a_EH = torch.full((5, 1), value, dtype=torch.float64, requires_grad=True)
        spec = Sparseness(target=target, weight=weight, pull_outside=pull_outside)
        found = penalty(spec, a_EH)
        found.backward()
        mean = min(max(value, floor), 1 - floor)
        pull = weight * (-target / mean + (1 - target) / (1 - mean)) / 5
        inside = floor <= value <= 1 - floor
        assert found.item() == pytest.approx(
            weight * (target * math.log(target / mean) + (1 - target) * math.log((1 - target) / (1 - mean)))
        )
        assert a_EH.grad[0, 0].item() == pytest.approx(pull if inside or pull_outside else 0.0, rel=1e-9)
