"""The gradient of every layer, loss and activation, as a step applies it, held against central differences
of the loss in float64.
"""

import pytest
import torch

from tests.model.test_wide_loss import PAIRS, ROW_WISE, SINGLE, document, name_of, targets_of
from tests.model.twin import FOLLOWING, Real, Twin, dense_field, random_batch, snapshot, sparse

STEP, DIRECTIONS = 1e-6, 3
PICTURE = [2, 5, 6]
LAYERS = {
    "convolution": [
        {
            "name": "h",
            "kind": "convolution",
            "filters": 3,
            "kernel": [3, 2],
            "stride": [2, 1],
            "activation": "tanh",
        }
    ],
    "convolution, padded as DSSTNE does": [
        {"name": "h", "kind": "convolution", "filters": 2, "kernel": 3, "padding": "dsstne"}
    ],
    **{
        f"pooling, {name_of(function)}": [
            {"name": "h", "kind": "pooling", "function": function, "kernel": 2, "stride": 1}
        ]
        for function in ("max", "average")
    },
    "pooling, lrn": [
        {
            "name": "h",
            "kind": "pooling",
            "function": {"kind": "lrn", "k": 1, "n": 3, "alpha": 0.5, "beta": 0.75},
        }
    ],
    **{
        f"pooling, {function}": [
            {"name": "a", "units": 4, "activation": "tanh", "source": "in"},
            {"name": "b", "units": 4, "activation": "tanh", "source": "in"},
            {"name": "h", "kind": "pooling", "function": function, "source": ["a", "b"]},
        ]
        for function in ("maxout", "dot_product", "cosine")
    },
    "batch normalization": [{"name": "h", "units": 5, "activation": "tanh", "batch_normalization": True}],
    "batch normalization by channel": [
        {"name": "h", "kind": "convolution", "filters": 3, "kernel": 2, "batch_normalization": True}
    ],
    "skip": [
        {"name": "a", "units": 5, "activation": "tanh"},
        {"name": "h", "units": 5, "activation": "sigmoid", "skip": "a"},
    ],
    "skip alone": [
        {"name": "a", "units": 5, "activation": "linear"},
        {"name": "h", "units": 5, "activation": "sigmoid", "source": [], "skip": "a", "bias": False},
    ],
    "several sources": [
        {"name": "a", "units": 4, "source": "in"},
        {"name": "h", "units": 5, "activation": "selu", "source": ["in", "a"]},
    ],
    "sparseness": [{"name": "h", "units": 5, "activation": "sigmoid", "sparseness": {}}],
    "sparseness of a convolution": [
        {
            "name": "h",
            "kind": "convolution",
            "filters": 2,
            "kernel": 2,
            "activation": "sigmoid",
            "sparseness": {"target": 0.3},
        }
    ],
    "dropout": [{"name": "h", "units": 9, "activation": "tanh", "dropout": 0.4}],
}


def assert_gradient_is_that_of_central_differences(network, facts, batch, weights_E=None):
    """Along some directions in each weight: what the real network's step has moved it by, and the slope of
    the twin's loss.
    """
    real = Real(network, {}, facts)
    before = {key: weight.clone() for key, weight in snapshot(real.network).items()}
    real.step(batch, weights_E)
    rate, after = real.training.optimizer.learning_rate, snapshot(real.network)
    gradients = {key: (before[key] - after[key]) / rate for key in before if key[1] not in FOLLOWING}
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    generator = torch.Generator().manual_seed(3)

    def loss(key, moved):
        return float(
            Twin(real.spec, real.network.layout.units).loss(
                {**before, key: moved}, batch, weights_E, real.random
            )
        )

    for key, gradient in gradients.items():
        for _ in range(DIRECTIONS):
            direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
            slope = (
                loss(key, before[key] + STEP * direction) - loss(key, before[key] - STEP * direction)
            ) / (2 * STEP)
            rounding = 1e-5 * largest + 1.2e-7 * float(before[key].abs().max()) / rate
            allowed = rounding * float(direction.norm()) + 1e-8 * max(abs(slope), 1.0)
            assert abs(slope - float((gradient * direction).sum())) <= allowed, key
    assert largest > 1e-6


@pytest.mark.parametrize("kind", ["sparse with values", "dense"])
@pytest.mark.parametrize(("loss", "activation"), PAIRS, ids=name_of)
def test_every_loss_under_every_activation_of_an_output(loss, activation, kind):
    generator = torch.Generator().manual_seed(5)
    facts, targets = targets_of(kind, generator, 7, 37, loss)
    batch = {"in": random_batch(generator, 7, 23, 6), "out": targets}
    weights_E = torch.rand(7, generator=generator) * 3
    assert_gradient_is_that_of_central_differences(
        document(loss, activation), {"in": sparse(23), "out": facts}, batch, weights_E
    )


@pytest.mark.parametrize("activation", [*SINGLE, *ROW_WISE], ids=name_of)
def test_every_activation_of_a_hidden_layer(activation):
    generator = torch.Generator().manual_seed(6)
    network = document("cross_entropy", "softmax")
    network["layers"][1:2] = [
        {"name": "a", "units": 6, "activation": activation},
        {"name": "h", "units": 5, "activation": activation},
    ]
    batch = {"in": random_batch(generator, 7, 23, 6), "out": random_batch(generator, 7, 19, 5)}
    assert_gradient_is_that_of_central_differences(network, {"in": sparse(23), "out": sparse(19)}, batch)


@pytest.mark.parametrize("layers", LAYERS.values(), ids=LAYERS)
def test_every_layer(layers):
    generator = torch.Generator().manual_seed(8)
    network = document("cross_entropy", "softmax")
    network["layers"][:2] = [{"name": "in", "kind": "input", "field": "in", "shape": PICTURE}, *layers]
    batch = {"in": torch.randn(7, 60, generator=generator), "out": random_batch(generator, 7, 19, 5)}
    assert_gradient_is_that_of_central_differences(
        network, {"in": dense_field(60, -5, 5), "out": sparse(19)}, batch
    )
