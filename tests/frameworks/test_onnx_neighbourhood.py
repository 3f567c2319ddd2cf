"""Neighbourhood terms in ONNX: onnxruntime adds what evaluations add."""

import numpy as np
import pytest

from tests.frameworks.test_onnx_export import answers, assert_same, assert_same_best
from tests.interop.networks import scores
from widenet.data.lists import dataset_from_lists
from widenet.predict.top_k import top_k
from widenet.runs import train
from widenet.sparse import SparseBatch

ROWS = [[0, 3, 5], [3, 5, 7], [], [1], [2, 3, 7, 11, 22], [0, 5, 11], [2, 22], [7, 11, 3, 1]]
WIDTH = 23
TERM = {"weight": 1.7, "floor": 0.03, "popularity": 0.3}


def trained(path, *, sequence=False, **term):
    rows = [row + row[:1] for row in ROWS] if sequence else ROWS
    data = dataset_from_lists(path / "data", rows, width=WIDTH, sequence=sequence)
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 6, "activation": "linear", "bias": False},
        *([{"name": "state", "kind": "recurrent", "cell": "gru", "units": 6}] if sequence else []),
        {
            "name": "out",
            "kind": "output",
            "field": "items",
            "cosine": {"temperature": 0.2},
            **({"predict": "next"} if sequence else {}),
            **term,
        },
    ]
    return train({"layers": layers}, {"epochs": 2, "batch_size": 2, "shards": 3}, data, path / "run")


@pytest.mark.parametrize(
    ("sequence", "order"), [(False, "ignore"), (True, "ignore"), (True, "use"), (True, "forward")]
)
@pytest.mark.parametrize("neighbours", [2, 40])
def test_onnxruntime_gives_the_scores_of_a_run_with_a_term(neighbours, sequence, order, tmp_path):
    term = {**TERM, "neighbours": neighbours, "order": order}
    model = trained(tmp_path, sequence=sequence, neighbourhood=term)
    rows = [row[:1] + row + row[:2] for row in ROWS] if sequence else ROWS
    fields = {"items": SparseBatch.from_lists(rows)}
    assert_same(model, fields, tmp_path)
    assert_same_best(model, fields, tmp_path, 6)
    plain = trained(tmp_path / "plain", sequence=sequence)
    assert np.abs(scores(model, fields, "out") - scores(plain, fields, "out")).max() > 0.1
    _, units = top_k(model.network, fields, "out", 6, fields["items"])
    assert np.array_equal(answers(tmp_path / "best.onnx", fields)["out.units"], units.numpy())
