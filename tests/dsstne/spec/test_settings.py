"""Settings of DSSTNE's documents: activations, initial weights, losses, boosts and windows."""

import pytest

from tests.dsstne.test_spec import HALF_XAVIER, changed_case, config, hidden, layers_of
from widenet.dsstne.spec.network import translation


@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_keys_and_enumerated_values_are_taken_in_any_case(change):
    document = config(hidden(Activation="Tanh", pDropout=0.5), ErrorFunction="CrossEntropy", Decay=0.1)
    shouted = changed_case(document, change)
    for layer in shouted[change("Layers")]:
        for key in ("Kind", "Activation"):
            if change(key) in layer:
                layer[change(key)] = change(layer[change(key)])
    assert translation(shouted) == translation(document)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, HALF_XAVIER),
        ({"Scheme": "Xavier", "Scale": 3}, {"kind": "xavier", "scale": 1.5}),
        ({"Scheme": "CaffeXavier", "Scale": 2}, {"kind": "caffe_xavier", "scale": 2.0}),
        ({"Scheme": "Gaussian", "Scale": 0.01}, {"kind": "gaussian", "deviation": 0.01}),
        ({"Scheme": "Uniform", "Scale": 0.1}, {"kind": "uniform", "limit": 0.1}),
        ({"Scheme": "UnitBall", "Scale": 0.1}, {"kind": "uniform", "limit": 0.1, "low": 0.0}),
        ({"Scheme": "Constant", "Scale": 0.1}, {"kind": "constant", "value": -0.1}),
        ({"Scheme": "SELU"}, {"kind": "reciprocal", "scale": 1.0}),
    ],
)
def test_weights_begin_as_dsstnes_code_draws_them(given, expected):
    found = layers_of(config(hidden(WeightInit={**given, "Bias": -10.2})))[1]
    assert (found["initializer"], found["bias_start"]) == (expected, -10.2)


@pytest.mark.parametrize("key", ["ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy"])
@pytest.mark.parametrize("function", ["ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy"])
def test_both_spellings_of_the_margins_serve_both_losses(key, function):
    found = layers_of(config(ErrorFunction=function, **{key: {"oneTarget": 0.8, "zeroScale": 0.3}}))[-1]
    kind = (
        "data_scaled_marginal_cross_entropy"
        if function.startswith("Data")
        else "scaled_marginal_cross_entropy"
    )
    assert found["loss"] == {
        "kind": kind,
        "one_target": 0.8,
        "zero_target": 0.1,
        "one_scale": 1.0,
        "zero_scale": 0.3,
    }
    assert ("values" in found) == (kind == "scaled_marginal_cross_entropy")
