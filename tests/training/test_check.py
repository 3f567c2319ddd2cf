"""What ends a training before it begins: arguments, metrics that make no sense, and the name of the
document at fault.
"""

import json

import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import DocumentError, FitError
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
        documents = NetworkSpec.of(NETWORK), TrainingSpec.of({"evaluation": {"metric": metric}})
        return check_training(*documents, data.path, data.manifest)

    for metric in ("ndcg@20", "coverage@7", "mrr@1"):
        assert check(metric).units["mid"] == 3
    with mistake(DocumentError):
        check("popularity@20")


def test_a_document_is_called_by_the_path_it_was_read_from(data, tmp_path):
    (tmp_path / "wide.json").write_text(
        json.dumps({"layers": [{**NETWORK["layers"][0], "field": "item"}, *NETWORK["layers"][1:]]})
    )
    (tmp_path / "quick.json").write_text(json.dumps({"evaluation": {"output": "nxt"}}))
    with pytest.raises(FitError, match=r"wide\.json: layers\[0\]\.field"):
        train(tmp_path / "wide.json", {}, data, tmp_path / "run")
    with pytest.raises(FitError, match=r"quick\.json: evaluation\.output"):
        train(NETWORK, str(tmp_path / "quick.json"), data, tmp_path / "run")
    with mistake(FitError):
        train(NETWORK, {"evaluation": {"output": "nxt"}}, data, tmp_path / "run")


EVALUATIONS = {
    "no such part": ({"part": "heldout"}, FitError),
    "unknown metric": ({"metric": "ndgc@20"}, DocumentError),
    "metric without k": ({"metric": "recall"}, DocumentError),
    "unknown output": ({"output": "nxt"}, FitError),
}


@pytest.mark.parametrize("case", EVALUATIONS)
def test_an_evaluation_that_cannot_be_done_is_refused_before_anything_is_written(case, data, tmp_path):
    evaluation, error = EVALUATIONS[case]
    with mistake(error):
        train(NETWORK, {"evaluation": evaluation}, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_evaluation_of_an_empty_part_or_a_dense_output_is_refused_before_anything_is_written(tmp_path):
    empty = dataset_from_lists(
        tmp_path / "empty", [[0], [1]], validation=[[], []], dense={"age": [[1.0], [2.0]]}
    )
    with mistake(FitError):
        train(NETWORK, {"evaluation": {}}, empty, tmp_path / "run")
    network = {
        "layers": [
            *NETWORK["layers"][:2],
            {**NETWORK["layers"][2], "field": "age", "activation": "linear", "loss": "l2"},
        ]
    }
    with mistake(FitError):
        train(network, {"evaluation": {}}, empty, tmp_path / "run")
    assert not (tmp_path / "run").exists()
