"""Networks that DSSTNE trained give the same scores as runs."""

import netCDF4
import numpy as np
import pytest
import torch

from tests.dsstne.models import ACTIVATIONS, connected, forward, fully, write_model
from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_import import import_model
from widenet.errors import FitError, OptionError
from widenet.interop.import_network import import_network
from widenet.predict.top_k import top_k
from widenet.runs import Model
from widenet.sparse import SparseBatch

SPARSE, DENSE = 1, 0


def random_rows(seed, rows, width, share=0.3):
    rng = np.random.default_rng(seed)
    return (rng.random((rows, width)) < share) * rng.normal(size=(rows, width)).astype("f4")


def scores(model, inputs, output="Output"):
    """What the output gives for dense rows by input layer, [E, units]."""
    fields = {}
    for layer in model.run.network.inputs:
        rows = torch.from_numpy(np.asarray(inputs[layer.name], "f4"))
        if model.run.fields[layer.field].kind == "sparse":
            found = [torch.nonzero(row)[:, 0].tolist() for row in rows]
            fields[layer.field] = SparseBatch.from_lists(
                found, [rows[n][row].tolist() for n, row in enumerate(found)]
            )
        else:
            fields[layer.field] = rows
    width = model.network.outputs[output].width
    found, units = top_k(model.network, fields, output, width)
    return np.take_along_axis(found.numpy(), np.argsort(units.numpy(), axis=1), axis=1)


def autoencoder(hidden="Sigmoid", output="Sigmoid", width=10):
    return [
        fully("Input", "Input", width, data="gl_input", attributes=SPARSE),
        fully("Hidden1", "Hidden", 6, ["Input"], activation=hidden, dropout=0.5),
        fully("Output", "Output", width, ["Hidden1"], activation=output, data="gl_output"),
    ]


def assert_same(path, out, layers, connections, inputs, **options):
    model = import_model(write_model(path, layers, connections, **options.pop("changes", {})), out, **options)
    for layer in layers:
        if layer["kind"] == "Output":
            truth = forward(layers, connections, inputs)[layer["name"]]
            np.testing.assert_allclose(scores(model, inputs, layer["name"]), truth, rtol=2e-5, atol=2e-6)
    return model


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name != "SoftMax"])
def test_every_activation_gives_the_scores_of_its_formula(tmp_path, activation):
    layers = autoencoder(hidden=activation)
    assert_same(
        tmp_path / "x.nc", tmp_path / "run", layers, connected(1, layers), {"Input": random_rows(2, 7, 10)}
    )


@pytest.mark.parametrize("output", ["Sigmoid", "SoftMax"])
def test_an_output_straight_on_a_sparse_input_is_taken_and_written_back(output, tmp_path):
    layers = [
        fully("Input", "Input", 10, data="gl_input", attributes=SPARSE),
        fully("Output", "Output", 12, ["Input"], activation=output, data="gl_output"),
    ]
    inputs = {"Input": random_rows(2, 7, 10)}
    model = assert_same(tmp_path / "x.nc", tmp_path / "run", layers, connected(1, layers), inputs)
    export_model(model, tmp_path / "back.nc")
    again = import_model(tmp_path / "back.nc", tmp_path / "again")
    assert scores(again, inputs).tolist() == scores(model, inputs).tolist()


def test_several_inputs_sources_and_outputs(tmp_path):
    layers = [
        fully("Items", "Input", 9, data="items", attributes=SPARSE),
        fully("Age", "Input", 3, data="age", attributes=DENSE),
        fully("First", "Hidden", 5, ["Items", "Age"], activation="Tanh"),
        fully("Second", "Hidden", 4, ["First"], activation="RectifiedLinear"),
        fully("Third", "Hidden", 4, ["Second", "First", "Age"], activation="Linear"),
        fully("Next", "Output", 9, ["Third", "First"], activation="Sigmoid", data="items"),
        fully("Class", "Output", 4, ["Third"], activation="Sigmoid", data="class"),
    ]
    inputs = {"Items": random_rows(3, 6, 9), "Age": np.random.default_rng(4).normal(size=(6, 3))}
    model = assert_same(tmp_path / "x.nc", tmp_path / "run", layers, connected(5, layers), inputs)
    assert {name: (field.kind, field.width) for name, field in model.run.fields.items()} == {
        "items": ("sparse", 9),
        "age": ("dense", 3),
        "class": ("sparse", 4),
    }


def test_a_tied_decoder_stays_tied(tmp_path):
    layers = autoencoder()
    connections = connected(3, layers)
    connections["Hidden1", "Output"] = (("Input", "Hidden1"), True), connections["Hidden1", "Output"][1]
    model = assert_same(
        tmp_path / "x.nc", tmp_path / "run", layers, connections, {"Input": random_rows(2, 7, 10)}
    )
    assert sorted(model.network.wide) == ["Hidden1/Input", "Output bias"]


def convolved(image, weights, bias, stride):
    """Cross-correlation of [C, Y, X] as DSSTNE places it: at stride 1 with a margin of half the kernel,
    else without.
    """
    filters, _, height, width = weights.shape
    if stride == 1:
        image = np.pad(image, ((0, 0), (height // 2, height // 2), (width // 2, width // 2)))
    rows, columns = (
        (size - kernel) // stride + 1 for size, kernel in zip(image.shape[1:], (height, width), strict=True)
    )
    out = np.zeros((filters, rows, columns))
    for y in range(rows):
        for x in range(columns):
            window = image[:, y * stride : y * stride + height, x * stride : x * stride + width]
            out[:, y, x] = np.tensordot(weights, window, 3) + bias
    return out


def test_files_of_older_versions_are_read(tmp_path):
    layers = autoencoder()
    kept = {"version": np.float32(0.8)} | dict.fromkeys(
        ("decay", "SMCE_oneScale", "checkpoint_name", "deltaBoost_one", "maxout_k")
    )
    assert_same(
        tmp_path / "x.nc",
        tmp_path / "run",
        layers,
        connected(1, layers),
        {"Input": random_rows(2, 3, 10)},
        changes=kept | {"old": True},
    )


def test_index_files_name_features_and_padding_is_never_recommended(tmp_path):
    (tmp_path / "names").write_text("c\t2\na\t0\nd\t3\nb\t1\n")
    layers = autoencoder(width=128)
    connections = connected(1, layers)
    connections["Hidden1", "Output"][1][:] = np.linspace(-5, 5, 128)
    model = assert_same(
        tmp_path / "x.nc",
        tmp_path / "run",
        layers,
        connections,
        {"Input": random_rows(2, 7, 128)},
        features=tmp_path / "names",
        fields={"gl_input": "items", "gl_output": "items"},
    )
    found = Model.load(tmp_path / "run").recommend(["a"], 10)
    truth = forward(layers, connections, {"Input": np.eye(1, 128)})["Output"][0]
    assert [row.item for row in found] == sorted("bcd", key=lambda name: -truth["abcd".index(name)])
    assert model.run.fields["items"].width == 4


def test_a_dataset_names_the_features_and_is_predicted(tmp_path):
    dataset_from_lists(
        tmp_path / "data",
        [[0, 2], [1], [3, 4]],
        width=10,
        heldout=[[1], [2], [0]],
        item_ids=list("abcdefghij"),
    )
    path = write_model(tmp_path / "x.nc", autoencoder(), connected(1, autoencoder()))
    names = {"gl_input": "items", "gl_output": "items"}
    model = import_model(path, tmp_path / "run", data=tmp_path / "data", fields=names)
    block = next(model.predict(tmp_path / "data", 3))
    assert block.counts.tolist() == [3, 3, 3]
    assert set(model.evaluate(tmp_path / "data", ks=[2])) >= {"ndcg@2"}
    with mistake(OptionError, option="data"):
        import_model(path, tmp_path / "other", data=tmp_path / "data", features="names")
    assert (
        import_network(path, tmp_path / "same", data=tmp_path / "data", fields=names).fingerprint()
        == model.fingerprint()
    )
    with pytest.raises(FitError):
        import_model(path, tmp_path / "other", data=Dataset.open(tmp_path / "data"))
    assert not (tmp_path / "other").exists()


def test_a_parametric_rectifier_is_linear_for_dsstne_computes_nothing_for_it(tmp_path):
    layers = autoencoder()
    path = write_model(tmp_path / "x.nc", layers, connected(1, layers))
    with netCDF4.Dataset(path, "a") as file:
        file.setncattr("layer1_activation", np.uint32(4))
    assert import_model(path, tmp_path / "run").run.network.hidden[0].activation.kind == "linear"
