"""Spaces over a dataset: the metric, the parts, and values that no documents can have."""

import pytest

from tests.mistakes import mistake
from tests.tuning.studies import RATE, SPACE, UNITS, people, with_layer, with_training
from widenet.errors import DocumentError, FitError, OptionError
from widenet.spec.training import Evaluation
from widenet.tuning.space import SpaceSpec, check_space, random_choices, with_metric


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("space") / "data")


def space(values):
    return SpaceSpec.of(values, "space.json")


def test_a_metric_becomes_part_of_the_training_document():
    assert with_metric(space(SPACE), "recall@3").fixed_training.evaluation.metric == "recall@3"
    assert with_metric(space(SPACE), None) == space(SPACE)
    without = {**SPACE, "training": {**SPACE["training"], "evaluation": None}}
    assert with_metric(space(without), "recall@3").fixed_training.evaluation.metric == "recall@3"
    unsaid = {name: value for name, value in SPACE["training"].items() if name not in ("evaluation", "keep")}
    found = with_metric(space({**SPACE, "training": unsaid}), None)
    assert found.fixed_training.evaluation == Evaluation()


def test_a_search_needs_a_metric_of_the_validation_part():
    with mistake(DocumentError, option="metric", place="space.json"):
        with_metric(space(with_training(evaluation=None)), None)
    with mistake(DocumentError):
        with_metric(space(with_training(evaluation={"part": "heldout"})), None)
    with mistake(OptionError):
        with_metric(space(SPACE), "ndgc@5")
    with mistake(OptionError):
        with_metric(space(SPACE), "foo@3")


def test_a_dataset_without_validation_part_is_refused_with_the_remedy(tmp_path):
    plain = people(tmp_path / "plain", validation=False)
    with mistake(FitError):
        check_space(space(SPACE), plain)


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
    with mistake(DocumentError, place=f"layers[1].{field}"):
        check_space(space(values), data)


def test_a_value_is_kept_where_some_other_choices_go_with_it(data):
    """Shared weights need the units of their owner: 2 goes with 2, 4 with 4."""
    history, taste, output = SPACE["network"]["layers"]
    deep = {"name": "deep", "units": {"from": [2, 4]}, "activation": "tanh"}
    tied = {**output, "weights": {"layer": "taste", "transposed": True}}
    layers = [history, {**taste, "units": {"from": [2, 4]}}, deep, tied]
    check_space(space({"network": {"layers": layers}, "training": SPACE["training"]}), data)


def test_random_choices_list_a_grid_to_its_end_and_repeat_none():
    grid = space(with_training(optimizer={"kind": "adam", "learning_rate": {"from": [0.1, 0.2]}}))
    drawn_once = list(random_choices(grid, [], 0))
    assert len(drawn_once) == 6
    rest = list(random_choices(grid, drawn_once[:4], 0))
    assert all(choices in drawn_once[4:] for choices in rest)
    assert len(rest) == 2
    assert drawn_once != list(random_choices(grid, [], 1))
    some = [choices for choices, _ in zip(random_choices(space(SPACE), [], 0), range(5), strict=False)]
    assert {tuple(choices) for choices in some} == {(UNITS, RATE)}
    assert len({choices[RATE] for choices in some}) == 5
