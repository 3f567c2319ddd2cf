"""Spaces: which documents they hold, and values that no documents can have."""

import json

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, people, with_layer, with_training
from widenet.errors import DocumentError
from widenet.tuning.space import Between, SpaceSpec, check_space, from_labels

OPTIMIZERS = [
    {"kind": "adam", "learning_rate": {"between": [0.001, 0.1], "log": True}},
    {"kind": "sgd", "learning_rate": {"from": [1, 2]}},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("space") / "data")


def space(values):
    return SpaceSpec.of(values, "space.json")


def test_open_values_are_found_also_within_the_options_of_others():
    found = space(with_training(optimizer={"from": OPTIMIZERS}, seed={"between": [1, 3]})).open_values
    assert list(found) == [
        "network.layers[1].units",
        "training.optimizer",
        "training.optimizer.from[0].learning_rate",
        "training.optimizer.from[1].learning_rate",
        "training.seed",
    ]
    assert found["network.layers[1].units"].labels == ["2", "4", "6"]
    assert isinstance(found["training.seed"], Between)
    assert found["training.seed"].is_whole
    assert not found["training.optimizer.from[0].learning_rate"].is_whole


def test_choices_make_documents():
    choices = {
        "network.layers[1].units": "4",
        "training.optimizer": json.dumps(OPTIMIZERS[1]),
        "training.optimizer.from[1].learning_rate": "2",
    }
    whole = space(with_training(optimizer={"from": OPTIMIZERS}))
    network, training = whole.documents(from_labels(choices))
    assert network.layers[1].units == 4
    assert (training.optimizer.kind, training.optimizer.learning_rate) == ("sgd", 2)
    assert [*whole.plain(choices).values()] == [4, OPTIMIZERS[1], 2]


@pytest.mark.parametrize(
    ("values", "place"),
    [
        (with_training(epochs={"from": [1, 2]}), "training.epochs"),
        (with_layer(units=4) | {"training": {"epochs": 2}}, "space.json"),
        (with_layer(units={"from": [1, 1]}), "network.layers[1].units"),
        (with_layer(units={"from": []}), "network.layers[1].units.from"),
        (with_layer(units={"between": [2, 1]}), "network.layers[1].units"),
        (with_layer(l2={"between": [0, 1], "log": True}), "network.layers[1].l2"),
        (with_layer(units={"between": [1, 2], "by": 1}), "network.layers[1].units.by"),
    ],
)
def test_a_wrong_space_is_refused(values, place):
    with mistake(DocumentError, place=place):
        space(values)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (with_layer(units={"from": [0, -1]}), "units"),
        (with_layer(units={"from": [4, 0]}), "units"),
        (with_layer(dropout={"between": [0.0, 1.0]}), "dropout"),
        (with_layer(activation={"from": ["tanh", {"from": ["tahn", "relu"]}]}), "activation"),
        (with_layer(source={"from": ["history", "songs"]}), "source"),
    ],
)
def test_a_value_that_no_documents_can_have_is_refused(values, field, data):
    with mistake(DocumentError, place=f"network: layers[1].{field}"):
        check_space(space(values), data)


def test_a_value_is_kept_where_some_other_choices_go_with_it(data):
    """Shared weights need the units of their owner: 2 goes with 2, 4 with 4."""
    history, taste, output = SPACE["network"]["layers"]
    deep = {"name": "deep", "units": {"from": [2, 4]}, "activation": "tanh"}
    tied = {**output, "weights": {"layer": "taste", "transposed": True}}
    layers = [history, {**taste, "units": {"from": [2, 4]}}, deep, tied]
    check_space(space({"network": {"layers": layers}, "training": SPACE["training"]}), data)
