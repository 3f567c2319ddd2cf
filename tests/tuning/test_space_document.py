"""Spaces: which documents they hold, what they refuse, and their schema."""

import json

from widenet.tuning.space import Between, SpaceSpec, from_values

LAYERS = [
    {"name": "history", "kind": "input", "field": "items"},
    {"name": "taste", "units": {"from": [4, 8]}, "activation": "tanh"},
    {"name": "next", "kind": "output", "field": "items"},
]
OPTIMIZERS = [
    {"kind": "adam", "learning_rate": {"between": [0.001, 0.1], "log": True}},
    {"kind": "sgd", "learning_rate": {"from": [1, 2]}},
]


def space(**training):
    return SpaceSpec.of({"network": {"layers": LAYERS}, "training": training}, "space.json")


def test_choices_are_found_also_within_the_options_of_others():
    found = space(optimizer={"from": OPTIMIZERS}, seed={"between": [1, 3]}).choices
    assert list(found) == [
        "network.layers[1].units",
        "training.optimizer",
        "training.optimizer.from[0].learning_rate",
        "training.optimizer.from[1].learning_rate",
        "training.seed",
    ]
    assert found["network.layers[1].units"].labels == ["4", "8"]
    assert isinstance(found["training.seed"], Between)
    assert found["training.seed"].is_whole
    assert not found["training.optimizer.from[0].learning_rate"].is_whole


def test_choices_make_documents():
    choices = {
        "network.layers[1].units": "8",
        "training.optimizer": json.dumps(OPTIMIZERS[1]),
        "training.optimizer.from[1].learning_rate": "2",
    }
    network, training = space(optimizer={"from": OPTIMIZERS}).documents(from_values(choices))
    assert network.layers[1].units == 8
    assert (training.optimizer.kind, training.optimizer.learning_rate) == ("sgd", 2)


def test_the_grid_has_every_pair_of_documents_once():
    optimizers = [OPTIMIZERS[1], {"kind": "adagrad"}]
    grid = list(space(optimizer={"from": optimizers}, seed={"between": [1, 3]}).grid())
    assert len(grid) == 2 * (2 + 1) * 3
    assert len({json.dumps(choices) for choices in grid}) == len(grid)
    assert list(space(l2={"between": [0.0, 1.0]}).grid()) == []
    assert list(space(seed={"between": [1, 10_000]}).grid()) == []
