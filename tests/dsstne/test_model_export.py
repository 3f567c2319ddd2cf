"""Runs are written as networks that DSSTNE computes alike."""

import h5py
import numpy as np
import pytest
import torch

from tests.mistakes import mistake
from widenet import train
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_import import import_model
from widenet.errors import FitError

SPARSE, DENSE = 1, 0


def test_a_split_layer_is_written_as_a_whole_one(tmp_path):
    dataset = dataset_from_lists(tmp_path / "data", [[0, 2], [1, 3], [4], [2, 5]], width=7)
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "taste", "units": 3, "activation": "tanh"},
        {"name": "deep", "units": 5, "activation": "tanh", "split": True},
        {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
    model = train({"layers": layers}, {"epochs": 1, "shards": 3}, dataset, tmp_path / "run")
    export_model(model, tmp_path / "x.nc")
    again = import_model(tmp_path / "x.nc", tmp_path / "again").network
    rows = [rows for _, rows in model.network.rows("deep/taste")]
    assert torch.equal(again.trunk["deep/taste"].tensor, torch.cat(rows))


def test_a_trained_run_is_written_whatever_its_shards(tmp_path):
    dataset = dataset_from_lists(tmp_path / "data", [[0, 2], [1, 3], [4], [2, 5]], width=7)
    document = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "taste", "units": 3, "activation": "selu", "weight_norm": 2.0},
            {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid", "bias_start": -1.0},
        ]
    }
    model = train(document, {"epochs": 2, "shards": 3}, dataset, tmp_path / "run")
    export_model(model, tmp_path / "x.nc")
    with h5py.File(tmp_path / "x.nc") as file:
        floats = [
            float(np.ravel(file.attrs[name])[0])
            for name in ("layer1_ELUAlpha", "layer1_SELULambda", "layer1_weightNorm", "layer2_biasInit")
        ]
        weights = [
            file[f"weight{n}_weights"][()].reshape(shape).astype(float)
            for n, shape in enumerate([(7, 3), (3, 7)])
        ]
        biases = [file[f"weight{n}_bias"][()].astype(float) for n in range(2)]
    assert floats == pytest.approx([1.67326324, 1.05070098, 2.0, -1.0])
    seen = {"u": [0, 2]}
    block = next(model.predict(dataset, 7, exclude_seen=False))
    x = np.zeros(7)
    x[seen["u"]] = 1
    hidden = x @ weights[0] + biases[0]
    hidden = 1.0507009873554805 * np.where(hidden > 0, hidden, 1.6732632423543772 * np.expm1(hidden))
    truth = np.sort(1 / (1 + np.exp(-(hidden @ weights[1] + biases[1]))))[::-1]
    np.testing.assert_allclose(block.scores[:7], truth, rtol=1e-5)


def test_what_dsstne_computes_otherwise_is_named_all_at_once(tmp_path):
    dataset = dataset_from_lists(tmp_path / "data", [[0, 2], [1, 3]], width=4)
    document = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", "scale": "mean"},
            {"name": "taste", "units": 3, "activation": "gelu"},
            {"name": "out", "kind": "output", "field": "items", "cosine": {}, "neighbourhood": {}},
        ]
    }
    train(document, {"epochs": 1}, dataset, tmp_path / "run")
    with mistake(FitError, place="run") as caught:
        export_model(tmp_path / "run", tmp_path / "x.nc")
    for problem in (
        '"scale" of layer "in"',
        '"activation": "gelu" of layer "taste"',
        '"cosine" of layer "out"',
        '"neighbourhood" of layer "out"',
    ):
        assert problem in str(caught.value)
    assert not (tmp_path / "x.nc").exists()
