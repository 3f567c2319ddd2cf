"""What ends a training before it begins: arguments, metrics that make no sense, and the name of the
document at fault.
"""

import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import FitError
from widenet.runs import train

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


def test_an_evaluation_of_no_part_an_empty_one_or_a_dense_output_is_refused_before_anything_is_written(
    data, tmp_path
):
    with mistake(FitError):
        train(NETWORK, {"evaluation": {"part": "heldout"}}, data, tmp_path / "run")
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
