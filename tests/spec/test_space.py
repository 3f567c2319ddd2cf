"""Spaces: which documents they hold, what they refuse, and their schema."""

import json

import pytest

from widenet.errors import DocumentError
from widenet.spec.space import Between, SpaceSpec, from_values

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


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"l2": {"from": []}}, "training.l2.from must be at least 1 long; got []."),
        ({"l2": {"from": 3}}, "training.l2.from must be a list; got 3."),
        ({"l2": {"from": [1], "log": True}}, "training.l2.log is not a known field. Known: from."),
        ({"l2": {"from": [1, 1]}}, 'training.l2: "from" names a value twice. Keep one of them.'),
        ({"l2": {"from": [1], "between": [1, 2]}}, 'training.l2 must have "from" or "between"; it has both.'),
        ({"l2": {"between": [1]}}, "training.l2.between must be at least 2 long; got [1]."),
        ({"l2": {"between": ["1", 2]}}, 'training.l2.between[0] must be a number, without quotes; got "1".'),
        ({"l2": {"between": [2, 1]}}, 'training.l2: "between" must begin with the lower bound; got [2, 1].'),
        ({"l2": {"between": [0, 1], "log": True}}, 'training.l2: "log" needs bounds above 0; got 0.'),
        (
            {"l2": {"between": [1, 2], "lag": True}},
            'training.l2.lag is not a known field. Did you mean "log"?',
        ),
        ({"epochs": {"from": [1, 2]}}, "training.epochs must be the same in every trial. Write one value."),
        ({"l2": {"fron": [1, 2]}}, 'training.l2.fron is not a known field. Did you mean "from"?'),
        (
            {"l2": {"betwen": [1, 2], "log": True}},
            'training.l2.betwen is not a known field. Did you mean "bet',
        ),
        (
            {"evaluation": {"metric": {"from": ["ndcg@5", "ndcg@9"]}}},
            "training.evaluation.metric must be the same in every trial. Write one value.",
        ),
    ],
)
def test_a_wrong_space_is_refused_in_one_sentence(training, said):
    with pytest.raises(DocumentError) as refused:
        space(**training)
    assert str(refused.value).startswith(f"space.json: {said}")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"network": {}, "training": {}, "trials": 3},
            "trials is not a known field. Known: network, training.",
        ),
        ({"netwrk": {}, "training": {}}, 'netwrk is not a known field. Did you mean "network"?'),
        ({"network": {}}, 'training is missing. Add "training".'),
        ({"network": [], "training": {}}, "network must be an object; got []."),
        ({"network": {}, "training": {}}, "the space must leave a value open."),
    ],
)
def test_another_document_than_a_space_is_refused(values, said):
    with pytest.raises(DocumentError) as refused:
        SpaceSpec.of(values, "space.json")
    assert str(refused.value).startswith(f"space.json: {said}")


@pytest.mark.parametrize("values", [{"layers": LAYERS}, {"epochs": 3}])
def test_one_document_in_place_of_a_space_is_named(values):
    with pytest.raises(DocumentError) as refused:
        SpaceSpec.of(values, "described.json")
    assert str(refused.value) == (
        "described.json is a network or training document and stands where the space document belongs."
        ' A space is one file with both: {"network": {...}, "training": {...}}.'
    )


def test_the_schema_lets_every_value_be_open():
    definitions = SpaceSpec.model_json_schema()["$defs"]
    open_values = [{"$ref": "#/$defs/From"}, {"$ref": "#/$defs/Between"}]
    taste = definitions["HiddenLayer"]["properties"]
    assert taste["units"]["anyOf"][1:] == open_values
    assert definitions["TrainingSpec"]["properties"]["optimizer"]["anyOf"][1:] == open_values
    assert definitions["NetworkSpec"]["properties"]["layers"]["anyOf"][0]["items"]["anyOf"][1:] == open_values
    assert set(definitions["From"]["properties"]) == {"from"}
    assert set(definitions["Between"]["properties"]) == {"between", "log"}
