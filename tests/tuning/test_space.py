"""Spaces: which documents they hold, and values that no documents can have."""

import json

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, people, with_layer, with_training
from widenet.errors import DocumentError, FitError, OptionError
from widenet.spec.training import Evaluation
from widenet.tuning.space import Between, SpaceSpec, check_space, from_labels, with_metric

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
    assert whole.choices(from_labels(choices | {"training.seed": 3})) == choices
    assert [*whole.plain(choices).values()] == [4, OPTIMIZERS[1], 2]


def test_a_metric_becomes_part_of_the_training_document():
    assert with_metric(space(SPACE), "recall@3").fixed_training.evaluation.metric == "recall@3"
    assert with_metric(space(SPACE), None) == space(SPACE)
    without = {**SPACE, "training": {**SPACE["training"], "evaluation": None}}
    assert with_metric(space(without), "recall@3").fixed_training.evaluation.metric == "recall@3"
    unsaid = {name: value for name, value in SPACE["training"].items() if name not in ("evaluation", "keep")}
    found = with_metric(space({**SPACE, "training": unsaid}), None)
    assert found.fixed_training.evaluation == Evaluation()


@pytest.mark.parametrize(
    ("values", "metric", "kind", "place"),
    [
        (with_training(evaluation=None), None, DocumentError, "training.evaluation"),
        (with_training(evaluation={"part": "heldout"}), None, DocumentError, "training.evaluation.part"),
        (SPACE, "ndgc@5", OptionError, None),
        (SPACE, "foo@3", OptionError, None),
        (with_training(epochs={"from": [1, 2]}), None, DocumentError, "training.epochs"),
        (with_layer(units=4) | {"training": {"epochs": 2}}, None, DocumentError, "space.json"),
        (with_layer(units={"from": [1, 1]}), None, DocumentError, "network.layers[1].units"),
        (with_layer(units={"from": []}), None, DocumentError, "network.layers[1].units.from"),
        (with_layer(units={"between": [2, 1]}), None, DocumentError, "network.layers[1].units"),
        (with_layer(l2={"between": [0, 1], "log": True}), None, DocumentError, "network.layers[1].l2"),
        (with_layer(units={"between": [1, 2], "by": 1}), None, DocumentError, "network.layers[1].units.by"),
    ],
)
def test_a_wrong_space_is_refused(values, metric, kind, place):
    with mistake(kind, place=place):
        with_metric(space(values), metric)


def test_a_dataset_without_validation_part_is_refused(tmp_path):
    with mistake(FitError, place="plain"):
        check_space(space(SPACE), people(tmp_path / "plain", validation=False))


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
