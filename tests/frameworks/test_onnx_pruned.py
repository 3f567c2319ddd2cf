"""Pruned runs in ONNX: the scores of the run, in a file without the zeros."""

import numpy as np
import pytest
import torch

from tests.frameworks.test_onnx_export import session
from tests.interop.networks import feed, scores
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError
from widenet.frameworks.onnx_export import export_onnx
from widenet.frameworks.onnx_graph import weight_name
from widenet.frameworks.onnx_pruned import columns_name, numbers_name, widened_of
from widenet.interop.import_network import import_network
from widenet.predict.top_k import top_k
from widenet.runs import train
from widenet.runs.pruning import prune
from widenet.sparse import SparseBatch


@pytest.mark.parametrize("cosine", [None, {"temperature": 0.2}])
@pytest.mark.parametrize("tied", [False, True])
def test_onnxruntime_gives_the_scores_of_a_pruned_run(cosine, tied, tmp_path):
    rows = [[0, 3, 5], [4, 1], [1], [2, 3, 7, 11, 22]]
    data = dataset_from_lists(tmp_path / "data", rows, width=23)
    shared = {"weights": {"layer": "mid", "transposed": True}} if tied else {}
    output = {**shared, **({} if cosine is None else {"cosine": cosine})}
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 300},
        {"name": "out", "kind": "output", "field": "items", **output},
    ]
    train({"layers": layers}, {"epochs": 2, "batch_size": 2}, data, tmp_path / "run")
    model = prune(tmp_path / "run", tmp_path / "small", 20)
    export_onnx(model, tmp_path / "all.onnx")
    export_onnx(model, tmp_path / "best.onnx", top_k=6)
    fields = {"items": SparseBatch.from_lists(rows)}
    whole, best = session(tmp_path / "all.onnx"), session(tmp_path / "best.onnx")
    (found,) = whole.run(None, feed(whole, fields))
    assert np.abs(found - scores(model, fields, "out")).max() <= 1e-6
    _, units = top_k(model.network, fields, "out", 6, fields["items"])
    chosen = dict(
        zip([each.name for each in best.get_outputs()], best.run(None, feed(best, fields)), strict=True)
    )
    assert np.array_equal(chosen["out.units"], units.numpy())
    assert (tmp_path / "all.onnx").stat().st_size < 23 * 20 * 6 * (2 - tied) + 12_000
    again = import_network(tmp_path / "all.onnx", tmp_path / "again", data=tmp_path / "data")
    for name in model.network.wide:
        rows_before, rows_after = (
            torch.cat([block for _, block in each.network.rows(name)]) for each in (model, again)
        )
        assert torch.equal(rows_before, rows_after)


@pytest.mark.parametrize(
    ("columns", "numbers"),
    [
        ([[0, 4], [1, 5]], np.ones((2, 2))),
        ([[0, 4], [-1, 3]], np.ones((2, 2))),
        ([[0, 4], [3, 3]], np.ones((2, 2))),
        ([[0, 4]], np.ones((2, 2))),
        (None, np.ones((2, 2))),
        ([0, 4], np.ones(2)),
    ],
    ids=["too large", "negative", "twice", "too few", "missing", "no matrix"],
)
def test_columns_that_no_row_has_or_has_twice_are_refused(columns, numbers):
    places = {} if columns is None else {weight_name(columns_name("mid")): np.array(columns, np.int16)}
    constants = {weight_name(numbers_name("mid")): numbers.astype(np.float32), **places}
    rule = r'^a\.onnx: pruned weight "mid" must have a column below 5 for each number, different in a row\.'
    with pytest.raises(DataError, match=rule):
        widened_of("a.onnx", "mid", 5, constants)
    good = {**constants, weight_name(columns_name("mid")): np.array([[4, 0], [1, 3]], np.int16)}
    if numbers.ndim == 2:
        found = widened_of("a.onnx", "mid", 5, good)
        assert found.tolist() == [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0]]
