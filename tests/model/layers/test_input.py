"""What becomes of a field's features before the first weight: known answers."""

import math

import numpy as np
import pytest
import torch

from tests.model.test_network import BATCH as EXAMPLES
from tests.model.test_network import FIELDS, TOWER_FIELDS, WIDTH, items, network
from tests.model.twin import assert_step_matches_twin
from tests.rows import dense_rows
from widenet.model.preparation import damping, hide, scaled, scaled_dense
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.layers import InputLayer

RANDOM = StepRandom(5, 1, 2)


def layer(**settings):
    return InputLayer(kind="input", name="in", field="items", **settings)


BATCH = SparseBatch.from_lists([[0, 3, 5, 1], [], [2]], [[1.0, 2.0, 2.0, 4.0], [], [-3.0]])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", [1, 2, 2, 4, -3]),
        ("mean", [0.25, 0.5, 0.5, 1, -3]),
        ("rsqrt", [0.5, 1, 1, 2, -3]),
        ("unit", [0.2, 0.4, 0.4, 0.8, -1]),
    ],
)
def test_the_scales_of_a_sparse_row(scale, expected):
    found = scaled(layer(scale=scale), BATCH, None)
    assert found.values.tolist() == pytest.approx(expected)
    assert found.indices is BATCH.indices


@pytest.mark.parametrize(
    ("scale", "expected"), [("none", 1), ("mean", 1 / 4), ("rsqrt", 1 / 2), ("unit", 1 / 2)]
)
def test_the_scales_of_a_row_without_values(scale, expected):
    found = scaled(layer(scale=scale), BATCH.with_values(None), None)
    assert found.values_or_ones().tolist() == pytest.approx([expected] * 4 + [1])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("none", [[3, 0, 0, 4], [0, 0, 0, 0]]),
        ("mean", [[0.75, 0, 0, 1], [0] * 4]),
        ("rsqrt", [[1.5, 0, 0, 2], [0] * 4]),
        ("unit", [[0.6, 0, 0, 0.8], [0] * 4]),
    ],
)
def test_the_scales_of_a_dense_row(scale, expected):
    found = scaled_dense(layer(scale=scale), torch.tensor([[3.0, 0, 0, 4], [0, 0, 0, 0]]), None)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float32))


def test_damping_divides_by_the_count_relative_to_the_mean_count():
    counts = np.array([4, 0, 1, 7])
    assert damping(layer(popularity_damping=1.0), counts, 5).tolist() == pytest.approx(
        [1.0, 1.0, 4.0, 4 / 7, 1.0]
    )
    assert damping(layer(popularity_damping=0.5), counts, 4).tolist() == pytest.approx(
        [1.0, 1.0, 2.0, math.sqrt(4 / 7)]
    )


def test_what_is_hidden_and_what_stays_are_the_batch_once():
    stays, hidden = hide(layer(denoise=0.5), BATCH, RANDOM)
    for example in range(3):
        parts = [
            batch.indices[batch.indptr[example] : batch.indptr[example + 1]].tolist()
            for batch in (stays, hidden)
        ]
        assert sorted(parts[0] + parts[1]) == sorted(
            BATCH.indices[BATCH.indptr[example] : BATCH.indptr[example + 1]].tolist()
        )
    assert torch.equal(dense_rows(stays, 6) + dense_rows(hidden, 6), dense_rows(BATCH, 6))


def test_ignored_values_stay_out_of_the_input_and_in_what_was_hidden():
    stays, hidden = hide(layer(denoise=0.5, values="ignore"), BATCH, RANDOM)
    assert stays.values is None
    assert hidden.values is not None


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
