"""Split layers: a step is that of a dense twin in float64, and neither threads nor processes move a bit."""

import pytest
import torch

from tests import sequences
from tests.model.twin import assert_step_matches_twin, dense_field, random_batch, sparse
from tests.parallel.matrix import write_data
from tests.parallel.split import GATES, SIZES, SPLIT, outcomes_alone, outcomes_here

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "age", "kind": "input", "field": "age"},
    {"name": "h", "units": 9, "source": ["in", "age"], "activation": "tanh", "split": True},
    {"name": "mid", "units": 2, "source": ["h", "age"], "activation": "tanh", "split": True},
    {"name": "even", "units": 9, "source": ["mid", "h"], "skip": "h", "activation": "tanh", "split": True},
    {"name": "out", "kind": "output", "field": "items", "source": ["even", "h"]},
]
FACTS = {"items": sparse(23), "age": dense_field(4)}


def batch():
    generator = torch.Generator().manual_seed(3)
    return {
        "items": random_batch(generator, 7, 23, 6),
        "age": torch.randn(7, 4, generator=generator),
    }


def changed(**changes):
    return {"layers": [layer | (changes if layer.get("split") else {}) for layer in LAYERS]}


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({}, {}),
        ({"weight_norm": 0.3, "delta_norm": 0.05}, {}),
        ({"dropout": 0.3}, {"gradient_norm_limit": 0.05, "l2": 0.1}),
        ({"batch_normalization": True}, {"shards": 1, "l2": 0.1}),
        ({}, {"shards": 16}),
    ],
)
def test_a_step_is_that_of_the_dense_twin(changes, training):
    real, _ = assert_step_matches_twin(changed(**changes), FACTS, batch(), training)
    assert {name for name, weight in real.network.layout.weights.items() if weight.split} == {
        "h/age",
        "mid/h",
        "mid/age",
        "even/mid",
        "even/h",
    }


CHANGES = [
    {"optimizer": "sgd"},
    {"optimizer": "momentum", "gradient_norm_limit": 0.05},
    {"optimizer": "nesterov", "l1": 0.01},
    {"optimizer": "rmsprop", "precision": "bfloat16"},
    {"optimizer": "adam", "gradient_norm_limit": 0.05},
    {"optimizer": "adamw"},
    {"optimizer": "adagrad"},
    {"optimizer": "adadelta"},
]


CASES = {"hidden": (SPLIT, CHANGES), "recurrent": (GATES, CHANGES[1:5])}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dataset for each case."""
    folder = write_data(tmp_path_factory.mktemp("data"))
    sequences.write(folder / "sequences", examples=12)
    return {"hidden": folder / "dense", "recurrent": folder / "sequences"}


@pytest.fixture(scope="module")
def alone(data):
    return {name: outcomes_alone(case, data[name], changes) for name, (case, changes) in CASES.items()}


@pytest.mark.parametrize(("size", "some"), SIZES)
def test_every_number_of_processes_and_of_threads_gives_the_bits_of_one(size, some, data, alone, groups):
    for name, (case, changes) in CASES.items():
        assert len({fingerprint for _, fingerprint, *_ in alone[name]}) == len(changes)
        for found in groups(size)(outcomes_here, case, data[name], changes[some]):
            pairs = zip(changes[some], alone[name][some], found, strict=True)
            assert [changes for changes, one, many in pairs if one != many] == []
