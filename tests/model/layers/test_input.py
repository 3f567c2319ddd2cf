"""What becomes of a field's features before the first weight."""

import numpy as np
import pytest
import torch

from tests.model.test_network import BATCH as EXAMPLES
from tests.model.test_network import FIELDS, TOWER_FIELDS, WIDTH, items, network
from tests.model.twin import assert_step_matches_twin
from widenet.model.preparation import scaled_dense
from widenet.randomness import StepRandom
from widenet.spec.layers import InputLayer

RANDOM = StepRandom(5, 1, 2)


def layer(**settings):
    return InputLayer(kind="input", name="in", field="items", **settings)


def test_dropout_of_a_dense_field_zeroes_some_and_rescales_the_rest():
    ones = torch.ones(100, 100)
    found = scaled_dense(layer(dropout=0.25), ones, RANDOM)
    assert sorted(set(found.flatten().tolist())) == pytest.approx([0.0, 4 / 3])
    assert float((found == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert torch.equal(scaled_dense(layer(dropout=0.25), ones, None), ones)


@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("scale", ["none", "mean", "rsqrt", "unit"])
@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"values": "ignore"},
        {"denoise": 0.4},
        {"denoise": 0.4, "denoise_rescale": True},
        {"denoise": 0.4, "denoise_rescale": True, "values": "ignore"},
    ],
    ids=["as stored", "values ignored", "denoise", "denoise, rescaled", "denoise, rescaled, values ignored"],
)
@pytest.mark.parametrize("damping", [0.0, 0.7])
def test_a_sparse_input_enters_as_its_settings_say(entry, scale, values, damping):
    counts = {"items": np.array([0, 3, 1, 40, *range(1, WIDTH - 3)])}
    document = network(
        entry={**entry, "scale": scale, "popularity_damping": damping}, output={"values": "ignore"}
    )
    assert_step_matches_twin(document, FIELDS, {"items": items(values)}, counts=counts)


@pytest.mark.parametrize("scale", ["none", "mean", "rsqrt", "unit"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_dense_input_enters_as_its_settings_say(scale, dropout):
    document = {
        "layers": [
            {"name": "age", "kind": "input", "field": "age", "scale": scale, "dropout": dropout},
            {"name": "h", "units": 6, "activation": "tanh"},
            {"name": "out", "kind": "output", "field": "items"},
        ]
    }
    assert_step_matches_twin(document, TOWER_FIELDS, EXAMPLES)
