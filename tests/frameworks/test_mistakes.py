"""Networks of Keras and Caffe that cannot be read: the class of the error, its place, and what it names."""

import h5py
import pytest

from tests.frameworks.test_caffe_import import BLOBS, NET, POOLED, trained, written
from tests.frameworks.test_caffe_import import numbers as drawn
from tests.frameworks.test_keras_import import (
    before_keras_3,
    channels,
    dense,
    layer,
    layer_of,
    numbers,
    save,
    save_h5,
)
from tests.mistakes import mistake
from widenet.errors import DataError, OptionError
from widenet.frameworks import folded_layer
from widenet.interop.import_network import import_network

CHANNELS = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 dim: 5 dim: 5 } } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 3 kernel_size: 2 bias_term: false } }
layer { name: "prob" type: "Softmax" bottom: "c" top: "prob" }
"""


def caffe(net=NET, blobs=BLOBS, cut=None):
    """A .prototxt and its weights, of which the first `cut` bytes are left."""

    def write(folder):
        path, weights = written(folder / "net.prototxt", net), trained(folder / "net.caffemodel", blobs)
        weights.write_bytes(weights.read_bytes()[:cut])
        return {"path": path, "weights": weights}

    return write


def convolution(more):
    """A convolution over 64 channels, as text and weights."""
    shape = "input_param { shape { dim: 1 dim: 64 dim: 5 dim: 6 } }"
    text = f"""
    layer {{ name: "data" type: "Input" top: "data" {shape} }}
    layer {{ name: "c" type: "Convolution" bottom: "data" top: "c"
      convolution_param {{ num_output: 64 kernel_size: 3 bias_term: false {more} }} }}
    """
    return caffe(text, {"c": [drawn(64, 1 if "group" in more else 64, 3, 3)]})


LAYERS = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end")]
END = {"dense": ("end", [numbers(5, 2), numbers(2)])}
ALONG = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def keras(layers=LAYERS, weights=END, damage=lambda content: content):
    """A model of Keras 3."""

    def write(folder):
        path = save(folder / "model.keras", "Sequential", {"layers": layers}, weights)
        path.write_bytes(damage(path.read_bytes()))
        return {"path": path}

    return write


def recurrent(kind="GRU", **change):
    """A model along a sequence."""
    state = layer_of(kind, "state")
    state["config"] |= change
    table = [layer("InputLayer", "history", batch_shape=[None, 4]), layer("Embedding", "table")]
    own = [numbers(5, 18), numbers(6, 18), numbers(2, 18)]
    weights = {"table": [numbers(9, 5)], "state": own, "end": [numbers(6, 2), numbers(2)]}

    def write(folder):
        layers = [*table, state, dense("end")]
        return {"path": save_h5(folder / "model.h5", "Sequential", {"layers": layers}, weights)}

    return write


def functional(*layers):
    """A model of two LSTMs over an embedding, and what follows them."""
    arrays = [numbers(3, 12), numbers(3, 12), numbers(12)]
    weights = {"table": [numbers(9, 3)], "along": arrays, "state": arrays, "end": [numbers(3, 2)]}
    before = [
        before_keras_3("InputLayer", "history", [], batch_shape=[None, 4]),
        before_keras_3("Embedding", "table", ["history"]),
    ]
    end = before_keras_3("Dense", "end", ["both"], activation="linear", use_bias=False)
    config = {"layers": [*before, *layers, end], "output_layers": [["end", 0, 0]]}
    return lambda folder: {"path": save_h5(folder / "model.h5", "Functional", config, weights)}


def of_weights_alone(folder):
    with h5py.File(folder / "model.h5", "w") as file:
        file.attrs["layer_names"] = ["dense"]
    return {"path": folder / "model.h5"}


AVERAGE = before_keras_3("GlobalAveragePooling1D", "average", ["table"])
STATE = before_keras_3("LSTM", "state", ["table"], **ALONG)
JOINED = before_keras_3("Concatenate", "both", ["state", "average"])
UNKNOWN = [
    LAYERS[0],
    layer("Lambda", "code", function={"class_name": "__lambda__", "config": {"code": "4wEA"}}),
    layer("GRU", "memory"),
    layer("LeakyReLU", "steep", negative_slope=2.0),
    LAYERS[1],
]
STACKED = [
    before_keras_3("LSTM", "along", ["table"], return_sequences=True, **ALONG),
    before_keras_3("LSTM", "state", ["along"], **ALONG),
    before_keras_3("Add", "both", ["state", "along"]),
]
CASES = [
    (caffe('layers { layer { name: "x" } }'), "net.prototxt", []),
    (caffe(NET.replace("TanH", "Python").replace("Concat", "Crop")), "net.prototxt", ["tanh", "Crop"]),
    (caffe("layer {"), "net.prototxt", []),
    (caffe("a {" * 5000 + "}" * 5000), "net.prototxt", []),
    (caffe(cut=50), "net.caffemodel", []),
    (caffe(cut=-3), "net.caffemodel", []),
    (caffe(blobs={name: blobs for name, blobs in BLOBS.items() if name != "ip3"}), '"ip3"', []),
    (
        caffe(POOLED % "pool: MAX kernel_size: 4 stride: 3 pad: 1", {"ip": [drawn(2, 18), drawn(2)]}),
        "net.prototxt",
        ["pool"],
    ),
    (caffe(CHANNELS, {"c": [drawn(3, 2, 2, 2)]}), "net.prototxt", ["prob"]),
    (convolution("dilation: 1048576"), "net.prototxt", ["1048576"]),
    (convolution("group: 64"), "net.prototxt", ["64 groups"]),
    (keras(UNKNOWN), "model.keras", ["code", "memory", "steep"]),
    (keras(damage=lambda content: content[:0]), "model.keras", []),
    (keras(damage=lambda content: content[: len(content) // 2]), "model.keras", []),
    (keras(damage=lambda content: content.replace(b"Sequential", b"Subclassed")), "model.keras", []),
    (keras(damage=lambda content: content.replace(b"class_name", b"class_game")), "model.keras", []),
    (keras(weights={"dense": ("end", [numbers(4, 2), numbers(2)])}), '"end"', []),
    (keras(weights={"dense": ("end", [numbers(5, 2)])}), 'layer "end"', []),
    (keras(channels(3), {"conv2d": ("edges", [numbers(2, 2, 2, 4)])}), "model.keras", ["shares"]),
    (keras(channels(3, own=True), {"conv2d": ("edges", [numbers(2, 2, 2, 4)])}), "model.keras", ["edges"]),
    (of_weights_alone, "model.h5", []),
    (recurrent(reset_after=False), "model.h5", ["state", "reset_after"]),
    (recurrent(recurrent_activation="hard_sigmoid"), "model.h5", ["state", "hard_sigmoid"]),
    (recurrent(go_backwards=True), "model.h5", ["state", "go_backwards"]),
    (recurrent(return_sequences=True), "model.h5", ["end"]),
    (functional(STATE, AVERAGE, JOINED), "model.h5", ["average"]),
    (functional(AVERAGE, STATE, JOINED), "model.h5", ["state"]),
    (functional(*STACKED), "model.h5", ["both"]),
]


@pytest.mark.parametrize(("write", "place", "names"), CASES)
def test_what_cannot_be_read_is_refused_and_named(write, place, names, tmp_path, monkeypatch):
    monkeypatch.setattr(folded_layer, "available_memory", lambda: 100_000)
    files = write(tmp_path)
    with mistake(DataError, place=place) as caught:
        import_network(out=tmp_path / "run", **files)
    assert [name for name in names if name not in str(caught.value)] == []
    assert not (tmp_path / "run").exists()


def test_a_prototxt_needs_its_weights(tmp_path):
    with mistake(OptionError, place="net.prototxt", option="weights"):
        import_network(written(tmp_path / "net.prototxt"), tmp_path / "run")
