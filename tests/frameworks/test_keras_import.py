"""Keras models read: files written by hand in Keras's layout, and by Keras itself where there is one."""

import io
import json
import os
import subprocess
import zipfile

import h5py
import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.interop.outcomes import scored
from tests.mistakes import mistake
from widenet.errors import DataError
from widenet.interop.import_network import import_network

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 5)).astype(np.float32)


def numbers(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def layer(kind, name, sources=None, **config):
    """A layer as config.json has it; sources: the layers it is called on, in a functional model."""
    found = {
        "module": "keras.layers",
        "class_name": kind,
        "config": {"name": name, **config},
        "registered_name": None,
        "name": name,
    }
    if sources is not None:
        tensors = [
            {"class_name": "__keras_tensor__", "config": {"keras_history": [source, 0, 0]}}
            for source in sources
        ]
        args = [tensors if kind in ("Concatenate", "Add") else tensors[0]] if tensors else []
        found["inbound_nodes"] = [{"args": args, "kwargs": {}}] if tensors else []
    return found


def dense(name, sources=None, activation="linear", use_bias=True):
    return layer("Dense", name, sources, units=0, activation=activation, use_bias=use_bias)


LAST = {"data_format": "channels_last"}


def convolution(activation):
    more = {"strides": [1, 1], "padding": "same", "use_bias": True, **LAST}
    return layer("Conv2D", "edges", activation=activation, **more)


def pooling(padding):
    return layer("MaxPooling2D", "largest", pool_size=[2, 2], strides=[2, 2], padding=padding, **LAST)


def save(path, kind, config, weights, names=True):
    """weights: for each group, the layer's name and its arrays. names: as Keras 3.5 and later writes them
    beside.
    """
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr(
            "config.json",
            json.dumps({"module": "keras", "class_name": kind, "config": {"name": "model", **config}}),
        )
        packed = io.BytesIO()
        with h5py.File(packed, "w") as file:
            file.create_group("layers")
            for group, (name, arrays) in weights.items():
                variables = file.create_group(f"layers/{group}/vars")
                if group.endswith("/cell"):
                    file.create_group(f"layers/{group.removesuffix('/cell')}/vars").attrs["name"] = name
                if names:
                    variables.attrs["name"] = name
                for place, array in enumerate(arrays):
                    variables[str(place)] = array
        archive.writestr("model.weights.h5", packed.getvalue())
    return path


def save_h5(path, kind, config, weights):
    """weights: by layer, its arrays; as Keras writes models into HDF5 alone."""
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": kind, "config": config})
        for name in [each["config"]["name"] for each in config["layers"]]:
            group, arrays = file.create_group(f"model_weights/{name}"), weights.get(name, [])
            group.attrs["weight_names"] = [
                f"{name}/{name}/weight_{place}:0".encode() for place in range(len(arrays))
            ]
            for place, array in enumerate(arrays):
                group[f"{name}/{name}/weight_{place}:0"] = array
    return path


def before_keras_3(kind, name, sources, **config):
    """A layer of a functional model, as older files have it."""
    return {
        "class_name": kind,
        "config": {"name": name, **config},
        "name": name,
        "inbound_nodes": [[[each, 0, 0, {}] for each in sources]],
    }


@pytest.mark.parametrize("names", [True, False])
def test_a_sequential_model_scores_as_its_layers_do(names, tmp_path):
    w1, b1, w2, w3, b3 = numbers(5, 4), numbers(4), numbers(4, 3), numbers(3, 2), numbers(2)
    layers = [
        layer("InputLayer", "profile", batch_shape=[None, 5]),
        layer("Rescaling", "rescaling", scale=0.5, offset=0.25),
        dense("first", activation="tanh"),
        layer("Dropout", "dropout", rate=0.4),
        dense("second", use_bias=False),
        layer("LeakyReLU", "leaky", negative_slope=0.3),
        dense("third", activation="softmax"),
    ]
    weights = {"dense": ("first", [w1, b1]), "dense_1": ("second", [w2]), "dense_2": ("third", [w3, b3])}
    path = save(tmp_path / "model.keras", "Sequential", {"layers": layers}, weights, names)
    model = import_network(path, tmp_path / "run")
    hidden = np.tanh((X * 0.5 + 0.25) @ w1 + b1) @ w2
    wanted = torch.softmax(
        torch.from_numpy(np.where(hidden > 0, hidden, 0.3 * hidden) @ w3 + b3), dim=1
    ).numpy()
    assert np.allclose(scored(model, profile=X)["third"], wanted, atol=1e-5)
    assert model.run.network.layer("first").dropout == 0.4


def test_a_functional_model_scores_as_its_layers_do(tmp_path):
    table, w1, b1, w2, w3, b3 = (
        numbers(9, 3),
        numbers(5, 4),
        numbers(4),
        numbers(7, 2),
        numbers(4, 2),
        numbers(2),
    )
    statistics = [numbers(4), numbers(4), numbers(4), np.abs(numbers(4)) + 0.1]
    layers = [
        layer("InputLayer", "profile", [], batch_shape=[None, 5]),
        layer("InputLayer", "history", [], batch_shape=[None, 3]),
        dense("first", ["profile"], activation="relu"),
        layer("BatchNormalization", "normal", ["first"], scale=True, center=True, epsilon=0.001),
        layer("Embedding", "table", ["history"], mask_zero=False),
        layer("GlobalAveragePooling1D", "mean", ["table"]),
        layer("Concatenate", "both", ["normal", "mean"], axis=-1),
        dense("second", ["both"], use_bias=False),
        dense("third", ["normal"]),
        layer("Add", "total", ["second", "third"]),
        layer("Activation", "end", ["total"], activation="elu"),
    ]
    config = {
        "layers": layers,
        "input_layers": [["profile", 0, 0], ["history", 0, 0]],
        "output_layers": ["end", 0, 0],
    }
    weights = {
        "dense": ("first", [w1, b1]),
        "dense_1": ("second", [w2]),
        "dense_2": ("third", [w3, b3]),
        "embedding": ("table", [table]),
    }
    weights["batch_normalization"] = ("normal", statistics)
    model = import_network(save(tmp_path / "model.keras", "Functional", config, weights), tmp_path / "run")
    ids = RANDOM.integers(0, 9, (6, 3))
    gamma, beta, mean, variance = statistics
    normal = gamma * (np.maximum(X @ w1 + b1, 0) - mean) / np.sqrt(variance + 0.001) + beta
    total = np.concatenate([normal, table[ids].mean(axis=1)], axis=1) @ w2 + normal @ w3 + b3
    wanted = torch.nn.functional.elu(torch.from_numpy(total)).numpy()
    assert np.allclose(scored(model, profile=X, history=ids.tolist())["end"], wanted, atol=1e-5)


def test_a_convolutional_model_scores_as_its_layers_do(tmp_path):
    kernel, b1, w2, b2 = numbers(2, 3, 2, 4), numbers(4), numbers(3 * 2 * 4, 3), numbers(3)
    layers = [
        layer("InputLayer", "image", batch_shape=[None, 5, 4, 2]),
        layer("Rescaling", "rescaling", scale=0.5, offset=0.0),
        convolution("tanh"),
        pooling("same"),
        layer("Flatten", "flat", data_format="channels_last"),
        dense("end"),
    ]
    weights = {"conv2d": ("edges", [kernel, b1]), "dense": ("end", [w2, b2])}
    model = import_network(
        save(tmp_path / "model.keras", "Sequential", {"layers": layers}, weights), tmp_path / "run"
    )
    images = torch.from_numpy(numbers(6, 2, 5, 4))
    padded = functional.pad(images * 0.5, (1, 1, 0, 1))
    value = torch.tanh(
        functional.conv2d(padded, torch.from_numpy(kernel).permute(3, 2, 0, 1), torch.from_numpy(b1))
    )
    largest = functional.max_pool2d(functional.pad(value, (0, 0, 0, 1), value=-torch.inf), 2)
    wanted = largest.permute(0, 2, 3, 1).flatten(1).numpy() @ w2 + b2
    assert np.allclose(scored(model, image=images.flatten(1).numpy())["end"], wanted, atol=1e-5)


def test_scales_and_shifts_before_padding_and_pooling_score_as_their_layers_do(tmp_path):
    kernel, b1, w2, b2 = numbers(3, 3, 2, 4), numbers(4), numbers(2 * 2 * 4, 3), numbers(3)
    beta, mean, variance = numbers(4), numbers(4), np.abs(numbers(4))
    gamma = np.array([0.8, -0.6, 1.1, -1.2], np.float32)  # of both signs
    layers = [
        layer("InputLayer", "image", batch_shape=[None, 4, 4, 2]),
        layer("Rescaling", "rescaling", scale=2.0, offset=-1.0),
        convolution("relu"),
        layer("BatchNormalization", "normal", axis=-1, epsilon=0.001, scale=True, center=True),
        pooling("valid"),
        layer("Flatten", "flat", data_format="channels_last"),
        dense("end"),
    ]
    weights = {
        "conv2d": ("edges", [kernel, b1]),
        "batch_normalization": ("normal", [gamma, beta, mean, variance]),
        "dense": ("end", [w2, b2]),
    }
    model = import_network(
        save(tmp_path / "model.keras", "Sequential", {"layers": layers}, weights), tmp_path / "run"
    )
    images = torch.from_numpy(numbers(6, 2, 4, 4))
    value = functional.relu(
        functional.conv2d(
            2 * images - 1, torch.from_numpy(kernel).permute(3, 2, 0, 1), torch.from_numpy(b1), padding=1
        )
    )
    value = functional.batch_norm(value, *map(torch.from_numpy, (mean, variance, gamma, beta)), eps=0.001)
    wanted = functional.max_pool2d(value, 2).permute(0, 2, 3, 1).flatten(1).numpy() @ w2 + b2
    assert np.allclose(scored(model, image=images.flatten(1).numpy())["end"], wanted, atol=1e-4)


def channels(size, own=False):
    """A softmax over the channels of a convolution, whose own activation it is or that follows."""
    edges = {"strides": [1, 1], "padding": "valid", "use_bias": False, "data_format": "channels_last"}
    return [
        layer("InputLayer", "image", batch_shape=[None, size, size, 2]),
        layer("Conv2D", "edges", activation="softmax" if own else "linear", **edges),
        *([] if own else [layer("Softmax", "shares", axis=-1)]),
    ]


@pytest.mark.parametrize("own", [True, False])
def test_a_softmax_over_the_channels_of_a_single_place_is_taken(own, tmp_path):
    kernel, weights = numbers(2, 2, 2, 4), {}
    weights["conv2d"] = ("edges", [kernel])
    path = save(tmp_path / "m.keras", "Sequential", {"layers": channels(2, own)}, weights)
    images = torch.from_numpy(numbers(6, 2, 2, 2))
    value = functional.conv2d(images, torch.from_numpy(kernel).permute(3, 2, 0, 1))
    found = scored(import_network(path, tmp_path / "run"), image=images.flatten(1).numpy())
    wanted = value.flatten(1).softmax(1).numpy()
    assert np.allclose(found["edges" if own else "shares"], wanted, atol=1e-6)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gone_along(kind, table, kernel, own, bias, row):
    """Keras's formulas, in its own order of gates: the state after every position."""
    units = own.shape[0]
    state, memory, found = np.zeros(units), np.zeros(units), []
    for feature in row:
        x = table[feature] if table is not None else feature
        if kind == "GRU":
            z, r, n = np.split(x @ kernel + bias[0], 3)
            from_z, from_r, from_n = np.split(state @ own + bias[1], 3)
            z, n = sigmoid(z + from_z), np.tanh(n + sigmoid(r + from_r) * from_n)
            state = z * state + (1 - z) * n
        else:
            i, f, c, o = np.split(x @ kernel + state @ own + bias, 4)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(c)
            state = sigmoid(o) * np.tanh(memory)
        found.append(state)
    return np.array(found).reshape(-1, units)


def layer_of(kind, name, **config):
    usual = {
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "use_bias": True,
        "return_sequences": False,
    }
    return layer(kind, name, **usual, **({"reset_after": True} if kind == "GRU" else {}), **config)


@pytest.mark.parametrize("as_keras_3", [True, False])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_models_score_as_their_formulas_do(kind, as_keras_3, tmp_path):
    gates = {"GRU": 3, "LSTM": 4}[kind]
    table, w, b = numbers(9, 5), numbers(4, 3), numbers(3)
    arrays = [[numbers(5, 6 * gates), numbers(6, 6 * gates)], [numbers(6, 4 * gates), numbers(4, 4 * gates)]]
    for each, units in zip(arrays, (6, 4), strict=True):
        each.append(numbers(2, units * gates) if kind == "GRU" else numbers(units * gates))
    layers = [
        layer("InputLayer", "history", batch_shape=[None, 4]),
        layer("Embedding", "table", mask_zero=True),
        {
            **layer_of(kind, "first"),
            "config": {**layer_of(kind, "first")["config"], "return_sequences": True},
        },
        layer_of(kind, "second"),
        dense("end"),
    ]
    by_layer = {"table": [table], "first": arrays[0], "second": arrays[1], "end": [w, b]}
    if as_keras_3:
        groups = {
            "embedding": "table",
            f"{kind.lower()}/cell": "first",
            f"{kind.lower()}_1/cell": "second",
            "dense": "end",
        }
        weights = {group: (name, by_layer[name]) for group, name in groups.items()}
        path = save(tmp_path / "m.keras", "Sequential", {"layers": layers}, weights, names=False)
    else:
        path = save_h5(tmp_path / "m.h5", "Sequential", {"layers": layers}, by_layer)
    model = import_network(path, tmp_path / "run")
    assert (model.run.fields["history"].kind, model.run.network.layer("history").last) == ("sequence", 4)
    rows = [[3, 1, 1, 8], [2], [5, 5]]
    ends = [gone_along(kind, None, *arrays[1], gone_along(kind, table, *arrays[0], row))[-1] for row in rows]
    assert np.allclose(scored(model, history=rows)["end"], np.array(ends) @ w + b, atol=1e-5)


def test_a_recurrent_model_of_one_field_predicts_the_next(tmp_path):
    layers = [
        layer("InputLayer", "history", batch_shape=[None, None]),
        layer("Embedding", "table"),
        layer_of("LSTM", "state"),
        dense("end"),
    ]
    weights = {
        "table": [numbers(9, 5)],
        "state": [numbers(5, 24), numbers(6, 24), numbers(24)],
        "end": [numbers(6, 9), numbers(9)],
    }
    path = save_h5(tmp_path / "m.h5", "Sequential", {"layers": layers}, weights)
    model = import_network(path, tmp_path / "run", fields={"history": "items", "end": "items"})
    assert (model.run.fields["items"].kind, model.run.network.layer("end").predict) == ("sequence", "next")
    assert len(model.recommend(["3", "1", "3"], 9)) == 7


def test_two_recurrent_layers_go_along_one_embedding(tmp_path):
    table, lower, ends = numbers(9, 5), numbers(6, 4), numbers(4, 2)
    own = {name: [numbers(5, 12), numbers(3, 12), numbers(12)] for name in ("left", "right")}
    recurrent = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    config = {
        "layers": [
            {
                **before_keras_3("InputLayer", "history", [], batch_input_shape=[None, 4]),
                "inbound_nodes": [],
            },
            before_keras_3("Embedding", "table", ["history"]),
            *(before_keras_3("LSTM", name, ["table"], **recurrent) for name in own),
            before_keras_3("Concatenate", "both", ["left", "right"]),
            before_keras_3("Dense", "lower", ["both"], activation="linear", use_bias=False),
            before_keras_3("LeakyReLU", "leaky", ["lower"], alpha=0.25),
            before_keras_3("Dense", "end", ["leaky"], activation="linear", use_bias=False),
        ],
        "output_layers": [["end", 0, 0]],
    }
    path = save_h5(
        tmp_path / "m.h5", "Functional", config, {"table": [table], "lower": [lower], "end": [ends], **own}
    )
    rows = [[3, 1, 1, 8], [2]]
    states = [
        np.concatenate([gone_along("LSTM", table, *arrays, row)[-1] for arrays in own.values()])
        for row in rows
    ]
    model = import_network(path, tmp_path / "run")
    below = np.array(states) @ lower
    wanted = np.where(below > 0, below, 0.25 * below) @ ends
    assert np.allclose(scored(model, history=rows)["end"], wanted, atol=1e-5)


def test_weights_that_lie_in_another_file_are_not_read(tmp_path):
    layers = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end", use_bias=False)]
    path = save(tmp_path / "model.keras", "Sequential", {"layers": layers}, {"dense": ("end", [])})
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["numbers"] = numbers(5, 2)
    packed = io.BytesIO()
    with h5py.File(packed, "w") as file:
        group = file.create_group("layers/dense/vars")
        layout = h5py.VirtualLayout((5, 2), "f4")
        layout[:] = h5py.VirtualSource(str(secret), "numbers", (5, 2))
        group.create_virtual_dataset("0", layout)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config)
        archive.writestr("model.weights.h5", packed.getvalue())
    with mistake(DataError, place='"layers/dense/vars/0"'):
        import_network(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


BY_KERAS = """
import sys
import keras
import numpy as np
from keras import layers as L

keras.utils.set_random_seed(1)
profile, history = keras.Input((5,), name="profile"), keras.Input((3,), dtype="int64", name="history")
table = L.GlobalAveragePooling1D()(L.Embedding(9, 4)(history))
hidden = L.Dense(8, activation="gelu", name="first")(L.Rescaling(0.5, offset=0.1)(profile))
hidden = L.Dropout(0.3)(L.BatchNormalization()(hidden))
both = L.Concatenate()([hidden, table])
image = keras.Input((6, 5, 3), name="image")
looked = L.BatchNormalization()(L.Conv2D(4, (3, 2), strides=2, padding="same")(image))
looked = L.MaxPooling2D(2, padding="same")(looked)
looked = L.Concatenate()([looked, L.AveragePooling2D((2, 1), strides=1, padding="same")(looked)])
means = L.GlobalAveragePooling2D()(L.Conv2D(5, 1, activation="elu")(looked))
looked = L.Concatenate()([L.Flatten()(looked), L.Flatten()(means)])
both = L.Concatenate()([both, L.Dense(6, activation="softplus")(looked)])
left, right = L.Dense(7, activation="selu")(both), L.LeakyReLU(negative_slope=0.2)(L.Dense(6)(both))
end = L.Dense(3, activation="softmax", name="end")(L.Concatenate()([left, right]))
model = keras.Model([profile, history, image], end)
random = np.random.default_rng(2)
for weight in model.weights:
    drawn = random.normal(size=weight.shape)
    weight.assign(np.abs(drawn) + 0.1 if "variance" in weight.path else drawn)
model.save(sys.argv[1])
ids, x = random.integers(0, 9, (6, 3)), random.normal(size=(6, 5)).astype("float32")
images = random.normal(size=(6, 6, 5, 3)).astype("float32")
np.savez(sys.argv[2], ids=ids, x=x, images=images, scores=np.array(model([x, ids, images], training=False)))
"""


@pytest.mark.skipif(
    "WIDENET_KERAS_PYTHON" not in os.environ, reason="WIDENET_KERAS_PYTHON names no Python that has Keras"
)
def test_a_model_that_keras_saved_scores_as_keras_says(tmp_path):
    path, truth = tmp_path / "model.keras", tmp_path / "truth.npz"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [os.environ["WIDENET_KERAS_PYTHON"], "-c", BY_KERAS, str(path), str(truth)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    with np.load(truth) as found:
        model = import_network(path, tmp_path / "run")
        images = np.ascontiguousarray(found["images"].transpose(0, 3, 1, 2)).reshape(6, -1)
        given = scored(model, profile=found["x"], history=found["ids"].tolist(), image=images)
        assert np.allclose(given["end"], found["scores"], atol=1e-5)
