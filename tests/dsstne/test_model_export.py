"""Runs are written as networks that DSSTNE computes alike."""

import h5py
import numpy as np
import pytest
import torch

from tests.dsstne.models import ACTIVATIONS, connected, forward, fully, write_model
from tests.mistakes import mistake
from widenet import train
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_import import import_model
from widenet.errors import FitError

SPARSE, DENSE = 1, 0
NAMES = {code: name for name, (code, _) in ACTIVATIONS.items()}


def read(path):
    """Layers and connections as another library finds them."""
    with h5py.File(path) as file:
        attributes = {
            name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()
        }
        variables = {name: file[name][()] for name in file}
    value = {
        name: found if isinstance(found, str) else np.ravel(found)[0] for name, found in attributes.items()
    }
    layers = []
    for number in range(value["layers"]):
        at = f"layer{number}_"
        sources = [value[f"{at}source{place}"] for place in range(value[f"{at}sources"])]
        kind, activation = ["Input", "Hidden", "Output"][value[f"{at}kind"]], NAMES[value[f"{at}activation"]]
        more = {
            "data": value[f"{at}dataSet"],
            "attributes": value[f"{at}attributes"],
            "dropout": value[f"{at}pDropout"],
        }
        layers.append(
            fully(value[f"{at}name"], kind, int(value[f"{at}Nx"]), sources, activation=activation, **more)
        )
    units, connections = {layer["name"]: layer["units"] for layer in layers}, {}
    for number in range(value["weights"]):
        at = f"weight{number}_"
        source, layer = value[f"{at}inputLayer"], value[f"{at}outputLayer"]
        if value[f"{at}bShared"]:
            weights = (
                (value[f"{at}sourceInputLayer"], value[f"{at}sourceOutputLayer"]),
                bool(value[f"{at}bTransposed"]),
            )
        else:
            weights = variables[f"{at}weights"].reshape(units[source], units[layer])
            assert (value[f"{at}width"], value[f"{at}height"]) == (units[layer], units[source])
        connections[source, layer] = weights, variables[f"{at}bias"]
    return value, layers, connections


def network(tied=False):
    layers = [
        fully("Items", "Input", 12, data="items", attributes=SPARSE),
        fully("Age", "Input", 2, data="age", attributes=DENSE),
        fully("First", "Hidden", 5, ["Items"], activation="Tanh", dropout=0.25),
        fully("Second", "Hidden", 5, ["First", "Age"], activation="LeakyRectifiedLinear"),
        fully("Next", "Output", 12, ["Second"] if tied else ["Second", "First"], data="items"),
    ]
    connections = connected(3, layers)
    if tied:
        connections["Second", "Next"] = ((("Items", "First"), True), connections["Second", "Next"][1])
    return layers, connections


@pytest.mark.parametrize("tied", [False, True])
def test_a_network_comes_back_to_the_bit_and_another_library_computes_the_same(tmp_path, tied):
    layers, between = network(tied)
    before = import_model(
        write_model(tmp_path / "x.nc", layers, between, errorFunction=np.uint32(3)), tmp_path / "run"
    )
    export_model(tmp_path / "run", tmp_path / "y.nc")
    after = import_model(tmp_path / "y.nc", tmp_path / "again")
    assert after.fingerprint() == before.fingerprint()
    assert after.run.network.model_dump(exclude={"name"}) == before.run.network.model_dump(exclude={"name"})
    value, found, weights = read(tmp_path / "y.nc")
    assert [(layer["name"], layer["data"], layer["attributes"]) for layer in found] == [
        ("Items", "items", 3), ("Age", "age", 0), ("First", "", 0), ("Second", "", 0), ("Next", "items", 0)
    ]  # fmt: skip
    assert (value["errorFunction"], value["bDenoising"], value["ShuffleIndices"]) == (3, 1, 0)
    rng = np.random.default_rng(9)
    inputs = {"Items": rng.integers(0, 2, (4, 12)), "Age": rng.normal(size=(4, 2))}
    truth = forward(layers, between, inputs)["Next"]
    np.testing.assert_allclose(forward(found, weights, inputs)["Next"], truth, rtol=1e-6)


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
