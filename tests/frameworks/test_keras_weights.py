"""Weights of Keras models: from HDF5 alone, damaged, missing, or in another file."""

import io
import zipfile

import h5py
import numpy as np
import pytest

from tests.frameworks.test_keras_import import X, before_keras_3, dense, layer, numbers, save, save_h5
from tests.interop.outcomes import scored
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError
from widenet.interop.import_network import import_network


def test_a_sequential_model_of_hdf5_alone_scores_as_its_layers_do(tmp_path):
    w1, b1, w2 = numbers(5, 4), numbers(4), numbers(4, 2)
    first = dense("first", activation="relu")
    first["config"]["batch_input_shape"] = [None, 5]
    layers = [first, dense("last", use_bias=False, activation="sigmoid")]
    path = save_h5(tmp_path / "model.h5", "Sequential", {"layers": layers}, {"first": [w1, b1], "last": [w2]})
    model = import_network(path, tmp_path / "run")
    wanted = 1 / (1 + np.exp(-np.maximum(X @ w1 + b1, 0) @ w2))
    assert np.allclose(scored(model, **{"first input": X})["last"], wanted, atol=1e-6)


def test_a_probability_over_counts_asks_whether_there_are_any(tmp_path):
    layers = [dense("first", use_bias=False), dense("last", use_bias=False, activation="sigmoid")]
    layers[0]["config"]["batch_input_shape"] = [None, 5]
    path = save_h5(
        tmp_path / "m.h5",
        "Sequential",
        {"layers": layers},
        {"first": [numbers(5, 4)], "last": [numbers(4, 5)]},
    )
    data = dataset_from_lists(tmp_path / "data", [[0, 3], [4]], values=[[2.0, 29.0], [1.0]], width=5)
    model = import_network(
        path, tmp_path / "run", fields={"first input": "items", "last": "items"}, data=data.path
    )
    assert model.run.network.outputs[0].values == "ignore"
    assert len(model.recommend(users="0", data=data, k=2)) == 2


def test_a_functional_model_of_hdf5_alone_scores_as_its_layers_do(tmp_path):
    w1, w2, w3 = numbers(5, 4), numbers(5, 3), numbers(7, 2)
    layers = [
        {**before_keras_3("InputLayer", "x", [], batch_input_shape=[None, 5]), "inbound_nodes": []},
        before_keras_3("Dense", "left", ["x"], activation="linear", use_bias=False),
        before_keras_3("LeakyReLU", "leaky", ["left"], alpha=0.25),
        before_keras_3("Dense", "right", ["x"], activation="tanh", use_bias=False),
        before_keras_3("Concatenate", "both", ["leaky", "right"], axis=-1),
        before_keras_3("Dense", "end", ["both"], activation="linear", use_bias=False),
    ]
    config = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["end", 0, 0]]}
    model = import_network(
        save_h5(tmp_path / "m.h5", "Model", config, {"left": [w1], "right": [w2], "end": [w3]}),
        tmp_path / "run",
    )
    left = X @ w1
    wanted = np.concatenate([np.where(left > 0, left, 0.25 * left), np.tanh(X @ w2)], axis=1) @ w3
    assert np.allclose(scored(model, x=X)["end"], wanted, atol=1e-5)


def test_weights_without_a_model_are_refused(tmp_path):
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file.attrs["layer_names"] = ["dense"]
    with pytest.raises(
        DataError,
        match=r"must hold a whole model; it has weights alone. Save it by model.save, not save_weights",
    ):
        import_network(tmp_path / "weights.h5", tmp_path / "run")


def test_a_damaged_file_is_one_sentence(tmp_path):
    layers = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end")]
    path = save(
        tmp_path / "model.keras",
        "Sequential",
        {"layers": layers},
        {"dense": ("end", [numbers(5, 2), numbers(2)])},
    )
    whole = path.read_bytes()
    for damaged in (
        whole[:0],
        whole[: len(whole) // 2],
        whole.replace(b"Sequential", b"Subclassed"),
        whole.replace(b"class_name", b"class_game"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"model\.keras(:| is no whole Keras 3 model: )"):
            import_network(path, tmp_path / "run")
    save(path, "Sequential", {"layers": layers}, {"dense": ("end", [numbers(4, 2), numbers(2)])})
    with pytest.raises(DataError, match='"end" must have a weight for each of its 5 inputs; got 4'):
        import_network(path, tmp_path / "run")
    save(path, "Sequential", {"layers": layers}, {"dense": ("end", [numbers(5, 2)])})
    with pytest.raises(DataError, match='layer "end" must have 2 weights; got 1'):
        import_network(path, tmp_path / "run")


@pytest.mark.parametrize("way", ["bytes", "virtual", "link"])
def test_weights_that_lie_in_another_file_are_not_read(tmp_path, way):
    layers = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end", use_bias=False)]
    path = save(tmp_path / "model.keras", "Sequential", {"layers": layers}, {"dense": ("end", [])})
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["numbers"] = numbers(5, 2)
    packed = io.BytesIO()
    with h5py.File(packed, "w") as file:
        group = file.create_group("layers/dense/vars")
        if way == "bytes":
            group.create_dataset("0", (5, 2), "f4", external=[(str(secret), 0, 40)])
        elif way == "link":
            group["0"] = h5py.ExternalLink(str(secret), "numbers")
        else:
            layout = h5py.VirtualLayout((5, 2), "f4")
            layout[:] = h5py.VirtualSource(str(secret), "numbers", (5, 2))
            group.create_virtual_dataset("0", layout)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config)
        archive.writestr("model.weights.h5", packed.getvalue())
    with pytest.raises(
        DataError, match=r"all weights must be in the model; 'layers/.*' refers to another file"
    ):
        import_network(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()
