"""What ends a training before it begins: arguments, metrics that make no sense, and the name of the
document at fault.
"""

import json
from pathlib import Path

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import ArgumentError, DocumentError, FitError, OptionError
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training

NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 3},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0], [1]], validation=[[1], [0]], width=3)


def test_the_bias_towards_popular_items_decides_nothing(data):
    def check(metric):
        return check_training(
            NetworkSpec.of(NETWORK), TrainingSpec.of({"evaluation": {"metric": metric}}), data
        )

    for metric in ("ndcg@20", "coverage@7", "mrr@1"):
        assert check(metric).units["mid"] == 3
    with pytest.raises(
        DocumentError,
        match=r'metric must be a metric that is better when larger .*; got "popularity@20"\. Use "ndcg@20"\.',
    ):
        check("popularity@20")


def test_a_document_is_called_by_the_path_it_was_read_from(data, tmp_path):
    (tmp_path / "wide.json").write_text(
        json.dumps({"layers": [{**NETWORK["layers"][0], "field": "item"}, *NETWORK["layers"][1:]]})
    )
    (tmp_path / "quick.json").write_text(json.dumps({"evaluation": {"output": "nxt"}}))
    with pytest.raises(FitError) as caught:
        train(tmp_path / "wide.json", {}, data, tmp_path / "run")
    assert str(caught.value).startswith(
        f'{tmp_path / "wide.json"}: layers[0].field ("in"): the dataset has no field "item".'
    )
    with pytest.raises(FitError) as caught:
        train(NETWORK, str(tmp_path / "quick.json"), data, tmp_path / "run")
    assert str(caught.value).startswith(f"{tmp_path / 'quick.json'}: evaluation.output must be one of out")
    with pytest.raises(FitError, match=r"^training\.json: evaluation\.output must"):
        train(NETWORK, {"evaluation": {"output": "nxt"}}, data, tmp_path / "run")


ARGUMENTS = {
    "network a number": (
        {"network": 5},
        ArgumentError,
        "network must be a NetworkSpec, a dictionary, a path or None; got 5",
    ),
    "network a list": ({"network": ["x"]}, ArgumentError, r"network must be .*; got \['x'\], a list"),
    "documents exchanged": (
        {"training": NetworkSpec.of(NETWORK)},
        ArgumentError,
        "training must be .*, a NetworkSpec",
    ),
    "data a number": ({"data": 5}, ArgumentError, "data must be a Dataset or a path; got 5"),
    "out a number": ({"out": 5}, OptionError, "out must be a path; got 5"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_an_argument_of_the_wrong_kind_is_one_sentence(case, data, tmp_path):
    changed, error, message = ARGUMENTS[case]
    with pytest.raises(error, match=message) as caught:
        train(**{"network": NETWORK, "training": {}, "data": data, "out": tmp_path / "run", **changed})
    assert "\n" not in str(caught.value)
    assert [path.name for path in Path(tmp_path).iterdir()] == ["data"]


EVALUATIONS = {
    "no such part": ({"part": "heldout"}, FitError, "has no heldout part"),
    "unknown metric": (
        {"metric": "ndgc@20"},
        DocumentError,
        'training.json: evaluation.metric: .* Did you mean "ndcg@20"?',
    ),
    "metric without k": (
        {"metric": "recall"},
        DocumentError,
        'training.json: evaluation.metric: .* Write "recall@10"',
    ),
    "unknown output": ({"output": "nxt"}, FitError, 'evaluation.output must be one of out; got "nxt"'),
}


@pytest.mark.parametrize("case", EVALUATIONS)
def test_an_evaluation_that_cannot_be_done_is_refused_before_anything_is_written(case, data, tmp_path):
    evaluation, error, message = EVALUATIONS[case]
    with pytest.raises(error, match=message):
        train(NETWORK, {"evaluation": evaluation}, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_of_an_empty_part_or_a_dense_output_is_refused_before_anything_is_written(tmp_path):
    empty = dataset_from_lists(
        tmp_path / "empty", [[0], [1]], validation=[[], []], dense={"age": [[1.0], [2.0]]}
    )
    with pytest.raises(FitError, match='the validation part of field "items" has no entries'):
        train(NETWORK, {"evaluation": {}}, empty, tmp_path / "run")
    network = {
        "layers": [
            *NETWORK["layers"][:2],
            {**NETWORK["layers"][2], "field": "age", "activation": "linear", "loss": "l2"},
        ]
    }
    with pytest.raises(FitError, match='output "out" predicts the dense field "age"'):
        train(network, {"evaluation": {}}, empty, tmp_path / "run")
    assert not (tmp_path / "run").exists()
