"""Inputs that went wrong once, made after documented layouts; README.md beside them says what is right."""

import os
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.data import import_data
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_import import import_model
from widenet.dsstne.spec.network import translation
from widenet.dsstne.text import _value, generate
from widenet.dsstne.train import train as train_as_dsstne
from widenet.errors import DataError, FitError
from widenet.predict.top_k import layer_values
from widenet.runs import train
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.training.state import Silence

CASES = (
    Path(os.environ.get("WIDENET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "cases" / "dsstne"
)
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="WIDENET_DATA has no cases")
DEFAULTS = {
    "batch_size": 1024,
    "epochs": 1,
    "optimizer": {"kind": "sgd", "learning_rate": 0.025},
    "l2": 0.0001,
}


class Losses(Silence):
    """Keeps the loss of every epoch."""

    def __init__(self):
        self.losses = []

    def epoch(self, record):
        self.losses.append(record["loss"])


def trained(name, out, tmp_path):
    folder, report = CASES / name, Losses()
    path = tmp_path / f"{out}.nc"
    train_as_dsstne(folder / "config.json", [folder / "in.nc", folder / f"{out}.nc"], path, DEFAULTS, report)
    with h5py.File(path) as file:
        return (
            report.losses,
            {key: file[key][()] for key in file if key.endswith(("_bias", "_weights"))},
            path,
        )


@needs_cases
def test_two_normalizations_are_refused_where_dsstne_has_one(tmp_path):
    folder = CASES / "two_lrn"
    import_data([folder / "in.nc", folder / "out.nc"], tmp_path / "data")
    run = train(
        folder / "network.json", folder / "training.json", tmp_path / "data", tmp_path / "run", device="cpu"
    )
    with mistake(FitError, place=run.run.path):
        export_model(run, tmp_path / "out.nc")
    assert not (tmp_path / "out.nc").exists()


ONCE = [
    [{"denoise": 0.2}, {"denoise": 0.3}, {}, {}],
    [{}, {}, {"sparseness": {"target": 0.1, "weight": 1}}, {"sparseness": {"target": 0.2, "weight": 1}}],
]


@pytest.mark.parametrize("settings", ONCE)
def test_what_dsstne_has_once_a_network_is_refused_where_it_differs(settings, tmp_path):
    first, second, hidden, other = settings
    layers = [
        {"name": "a", "kind": "input", "field": "items", **first},
        {"name": "b", "kind": "input", "field": "items", **second},
        {"name": "h", "units": 2, "source": ["a", "b"], **hidden},
        {"name": "g", "units": 2, **other},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    data = dataset_from_lists(tmp_path / "data", [[0], [1]], width=2)
    run = train({"layers": layers}, {"epochs": 1}, data, tmp_path / "run", device="cpu")
    with mistake(FitError, place=run.run.path):
        export_model(run, tmp_path / "out.nc")


@needs_cases
def test_a_dense_autoencoder_shares_its_weights(tmp_path):
    losses, weights, path = trained("tied_dense", "out", tmp_path)
    assert np.isfinite(losses).all()
    assert sorted(weights) == ["weight0_bias", "weight0_weights", "weight1_bias"]
    model = import_model(path, tmp_path / "back")
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)
    matrix = weights["weight0_weights"].reshape(6, 3)
    expected = np.tanh(x @ matrix + weights["weight0_bias"]) @ matrix.T + weights["weight1_bias"]
    assert np.allclose(values_of(model, x), expected, atol=1e-5)


@needs_cases
def test_weights_of_a_data_set_that_no_layer_names_do_not_count(tmp_path):
    plain, weights, _ = trained("weights_of_another_set", "out_plain", tmp_path)
    beside, others, _ = trained("weights_of_another_set", "out_with_unused_weighted", tmp_path)
    assert plain == beside
    assert plain[0] == pytest.approx(2.820, abs=5e-4)
    expected = np.load(CASES / "weights_of_another_set" / "expected.npz")
    for name in expected.files:
        assert np.array_equal(weights[name], others[name])
        assert np.allclose(weights[name], expected[name], atol=1e-6)


def values_of(model, x):
    """The values of the output for rows of numbers."""
    [layer] = model.run.network.inputs
    output = model.run.network.outputs[0].name
    rows = torch.from_numpy(x)
    if model.run.fields[layer.field].kind != "dense":
        units = [np.flatnonzero(row).tolist() for row in x]
        rows = SparseBatch.from_lists(units, [row[own].tolist() for row, own in zip(x, units, strict=True)])
    return torch.cat(list(layer_values(model.network, {layer.field: rows}, output)), dim=1).numpy()


@needs_cases
@pytest.mark.parametrize(("folder", "name"), [("names", "w16_names"), ("ce_linear", "w14_lrelu_big")])
def test_a_trained_network_predicts_as_in_dsstnes_arithmetic(folder, name, tmp_path):
    notes = []
    model = import_model(CASES / folder / f"{name}.nc", tmp_path / "run", say=notes.append)
    expected = np.load(CASES / folder / f"{name}.npz")
    assert np.allclose(values_of(model, expected["input 0"]), expected["output"], rtol=1e-5, atol=1e-6)
    assert notes


def test_names_that_no_network_document_may_have_are_changed_and_stay_different():
    layers = [
        {"Name": "a/b", "Kind": "Input", "DataSet": "items", "N": 5},
        {"Name": "a\\b", "Kind": "Hidden", "N": 3},
        {"Name": "x" * 200, "Kind": "Hidden", "N": 3, "Source": "a\\b", "Skip": "a\\b"},
        {"Name": "Output", "Kind": "Output", "DataSet": "items", "N": 5, "Source": ["x" * 200, "a\\b"]},
    ]
    document = translation({"Layers": layers})
    names = [layer.name for layer in NetworkSpec.of(document.network, "network").layers]
    assert len(set(names)) == 4
    assert names[0] != "a/b"
    assert len(document.notes) == 3


def generated(text, tmp_path):
    (tmp_path / "in.txt").write_bytes(text)
    files = [tmp_path / name for name in ("in.txt", "out.nc", "features", "samples")]
    generate("set", *files, new_features="create", analog=True)
    with h5py.File(tmp_path / "out.nc") as file:
        return file["sparseData0"][()]


@needs_cases
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("double_rounding", [1.00000023841857910, 1.62290167808532715]),
        ("flt_max", [np.finfo(np.float32).max]),
        ("fullwidth", None),
        ("underscore", None),
        ("latin1", None),
        ("windows_lines", [0, 0, 0]),
    ],
)
def test_numbers_are_those_of_c_rounded_once(name, expected, tmp_path):
    text = (CASES / "numbers" / f"{name}.txt").read_bytes()
    if expected is None:
        with mistake(DataError, place="in.txt", line=1):
            generated(text, tmp_path)
    else:
        assert generated(text, tmp_path).tolist() == np.array(expected, np.float32).tolist()


@given(st.integers(-(2**31), 2**31), st.integers(-60, 60), st.integers(-3, 3))
def test_a_value_is_the_float32_that_is_next_to_its_decimal(mantissa, power, last):
    """Also where a float64 between them would lie halfway."""
    halfway = (Decimal(2 * mantissa + 1) * Decimal(2) ** power).normalize()
    exact = halfway + Decimal(last).scaleb(-60) * abs(halfway)
    found = _value(f"{exact:f}", "here")
    near = np.float32(found)
    for other in (np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)):
        assert abs(Decimal(found) - exact) <= abs(Decimal(float(other)) - exact)
