"""Import of Keras models: .keras, a zip of config.json and model.weights.h5, and .h5.

The import neither runs nor unpickles anything in them.
"""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from widenet.errors import DataError
from widenet.frameworks.folded_layer import (
    Activate,
    Add,
    Affine,
    Convolve,
    Dense,
    Drop,
    Input,
    Join,
    Operation,
    Operations,
    Padding,
    Pool,
    Recur,
    Same,
    UnsupportedError,
    leaky,
    whole_filters,
)
from widenet.frameworks.folding import folded
from widenet.interop.hdf5 import check_heaps, outside
from widenet.interop.import_network import Imported, reading

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 1, 2, 3)}
"""Positions in Keras of widenet's gates: reset, update, new; or in, forget, new, out."""
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_MAX_CONFIG_BYTES = 2**26
_ACTIVATIONS = (
    "linear",
    "sigmoid",
    "tanh",
    "relu",
    "selu",
    "softplus",
    "softsign",
    "softmax",
    "gelu",
    "silu",
)


class Weights:
    """The weights of a model in an open HDF5 file.

    Attributes:
        path: The file.
        arrays: Arrays of each layer, in order.
        num_bytes: Size of the file, which no layer may exceed.
    """

    def __init__(self, path: Path, arrays: dict[str, list[Any]], num_bytes: int) -> None:
        self.path, self.arrays, self.num_bytes = path, arrays, num_bytes

    @classmethod
    def of_keras_3(cls, path: Path, file: Any, layers: Sequence[dict[str, Any]], num_bytes: int) -> "Weights":
        """Find the weights in `model.weights.h5`.

        Its groups are named by the layers' classes with a number, or by the layers' names.
        """
        _check_alone(path, file)
        groups = {name: _variables(file, group) for name, group in _groups(file, layers).items()}
        return cls(
            path,
            {name: [arrays[str(place)] for place in range(len(arrays))] for name, arrays in groups.items()},
            num_bytes,
        )

    @classmethod
    def of_hdf5(cls, path: Path, file: Any) -> "Weights":
        """Find the weights in a .h5 file, whose layers list them in order."""
        _check_alone(path, file)
        groups = file["model_weights"]
        arrays = {
            name: [groups[name][_text(each)] for each in groups[name].attrs["weight_names"]]
            for name in groups
        }
        return cls(path, {name: stored for name, stored in arrays.items() if stored}, path.stat().st_size)

    def of(self, name: str, count: int) -> list[np.ndarray]:
        """Read the weights of a layer as float32; raises DataError unless there are `count` of them."""
        stored = self.arrays.get(name, [])
        if len(stored) != count:
            rule = f"must have {count} weights"
            raise DataError(rule, place=f'{self.path}: layer "{name}"', value=len(stored))
        if sum(each.nbytes for each in stored) > self.num_bytes:
            rule = "must not have weights larger than their file"
            raise DataError(rule, place=f'{self.path}: layer "{name}"')
        return [np.asarray(each[()], np.float32) for each in stored]


def _variables(file: Any, group: str) -> Any:
    """Return the weights of a layer, or those of its cell."""
    own = file.get(f"{group}/vars", {})
    return own if len(own) else file.get(f"{group}/cell/vars", {})


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _check_alone(path: Path, weights: Any) -> None:
    """Raise DataError if some weights refer to another file."""
    name = outside(weights)
    if name is not None:
        raise DataError("refers to another file", place=f'{path}: "{name}"')


def _groups(file: Any, layers: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the group of each layer, named by its class and a number, or else by the layer's name."""
    seen: Counter[str] = Counter()
    groups = {}
    for layer in layers:
        plain = re.sub(r"\W+", "", layer["class_name"])
        snake = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", plain)).lower()
        groups[layer["config"]["name"]] = f"layers/{snake}" + (f"_{seen[snake]}" if seen[snake] else "")
        seen[snake] += 1
    by_name = {
        str(group["vars"].attrs.get("name", "")): f"layers/{key}"
        for key, group in file["layers"].items()
        if "vars" in group
    }
    return {**groups, **{name: group for name, group in by_name.items() if name in groups}}


def recurrent(name: str, kind: str, config: dict[str, Any], source: str, weights: Weights) -> Operation:
    """Return the operation of a GRU or an LSTM."""
    _check_supported(kind, config)
    kernel, state_kernel, *bias = weights.of(name, 3 if config.get("use_bias", True) else 2)
    biases = [_reordered(bias[0], kind)] if bias else []
    if biases and kind == "GRU":
        to_sums, to_state = biases[0]
        third = len(to_state) // 3
        biases = [
            np.concatenate(
                [to_sums[: 2 * third] + to_state[: 2 * third], to_sums[2 * third :], to_state[2 * third :]]
            )
        ]
    return Recur(
        name,
        source,
        "gru" if kind == "GRU" else "lstm",
        _reordered(kernel, kind).T,
        _reordered(state_kernel, kind).T,
        *biases,
    )


def _check_supported(kind: str, config: dict[str, Any]) -> None:
    """Raise UnsupportedError for a setting of a recurrent layer that widenet lacks."""
    for key, value in {"activation": "tanh", "recurrent_activation": "sigmoid"}.items():
        if config.get(key, value) != value:
            raise UnsupportedError(f'{kind} with "{key}": "{config[key]}"')
    for key in ("go_backwards", "stateful", "return_state"):
        if config.get(key):
            raise UnsupportedError(f'{kind} with "{key}"')
    if kind == "GRU" and not config.get("reset_after", False):
        raise UnsupportedError("GRU with the reset gate before the product (reset_after=False)")


def _reordered(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Reorder the gates along the last axis to widenet's order."""
    parts = np.split(numbers, len(_GATES[kind]), axis=-1)
    return np.concatenate([parts[gate] for gate in _GATES[kind]], axis=-1)


def read_keras(path: Path) -> Imported:
    """Read the network of a .keras file.

    Raises:
        DataError: The file is damaged, or has layers without a counterpart.
    """
    with reading(path, "Keras 3 model", zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if archive.getinfo(_CONFIG).file_size > _MAX_CONFIG_BYTES:
            rule = f"must have at most {_MAX_CONFIG_BYTES:,} bytes"
            raise DataError(rule, place=f"{path}: {_CONFIG}")
        config = json.loads(archive.read(_CONFIG))
        with archive.open(_WEIGHTS) as packed:
            check_heaps(packed)
        with archive.open(_WEIGHTS) as packed, h5py.File(packed, "r") as file:
            weights = Weights.of_keras_3(
                path, file, config["config"]["layers"], archive.getinfo(_WEIGHTS).file_size
            )
            return folded(str(path), _Reader(config, weights).run())


def read_keras_h5(path: Path) -> Imported:
    """Read the network of a .h5 file, which Keras 2 and 3 write.

    Raises:
        DataError: The file is damaged, or has layers without a counterpart.
    """
    with reading(path, "Keras model in HDF5"), path.open("rb") as raw:
        check_heaps(raw)
        with h5py.File(raw, "r") as file:
            if "model_config" not in file.attrs:
                raise DataError("must hold a whole model; it has weights alone", place=path)
            config = json.loads(file.attrs["model_config"])
            if isinstance(config["config"], list):  # a Sequential before Keras 2.2.3
                config["config"] = {"layers": config["config"]}
            return folded(str(path), _Reader(config, Weights.of_hdf5(path, file)).run())


class _Reader:
    def __init__(self, config: dict[str, Any], weights: Weights) -> None:
        self.kind, self.config, self.weights = config["class_name"], config["config"], weights
        self.layers: list[dict[str, Any]] = self.config["layers"]
        self.channels_last = all(
            layer["config"].get("data_format") != "channels_first" for layer in self.layers
        )
        self.steps: list[Operation] = []
        self.bags: dict[str, np.ndarray] = {}
        self.masked: set[str] = set()
        self.along: set[str] = set()

    def run(self) -> Operations:
        if self.kind not in ("Sequential", "Functional", "Model"):
            return Operations(
                problems=[f'"{self.config.get("name", "model")}" (a model of the class {self.kind})']
            )
        previous, ended, problems = self._first(), dict[str, str](), list[str]()
        for layer in self.layers:
            name, before = layer["config"]["name"], len(self.steps)
            nodes = layer.get("inbound_nodes", [])
            sources = [previous] if self.kind == "Sequential" else list(_tensors(nodes[0])) if nodes else []
            try:
                if len(nodes) > 1:
                    raise UnsupportedError(f"{layer['class_name']} that is used {len(nodes)} times")
                self._read(name, layer, [ended.get(source, source) for source in sources])
            except UnsupportedError as reason:
                problems.append(f'"{name}" ({reason})')
            ended[name] = self.steps[-1].name if len(self.steps) > before else name
            previous = ended[name]
        last = (
            [name for name, _, _ in _triples(self.config["output_layers"])]
            if self.kind != "Sequential"
            else [name]
        )
        return Operations(self.steps, {each: ended[each] for each in last}, problems)

    def _first(self) -> str:
        """Add the input of a Sequential model whose first layer has the shape, as before Keras 3."""
        first = self.layers[0]
        if (
            self.kind != "Sequential"
            or first["class_name"] == "InputLayer"
            or "batch_input_shape" not in first["config"]
        ):
            return ""
        name = f"{first['config']['name']} input"
        self.steps.append(self._input(name, first["config"]["batch_input_shape"]))
        return name

    def _read(self, name: str, layer: dict[str, Any], sources: list[str]) -> None:
        """Add the operations of a layer."""
        kind, config = layer["class_name"], layer["config"]
        source = sources[0] if sources else ""
        is_pooled = source in self.bags
        if kind in ("GRU", "LSTM"):
            self._recurrent(name, kind, config, sources)
        elif any(each in self.along for each in sources):
            raise UnsupportedError(f"{kind} at every position of a sequence")
        elif is_pooled and (kind != "GlobalAveragePooling1D" or source in self.masked):
            raise UnsupportedError(f"{kind} of an Embedding" + " with mask_zero" * (source in self.masked))
        elif kind == "InputLayer":
            self.steps.append(self._input(name, config.get("batch_shape") or config["batch_input_shape"]))
        elif kind == "Dense":
            self._dense(name, layer, source)
        elif kind == "Embedding":
            self._embedding(name, config, source)
        elif is_pooled:
            self.steps.append(Dense(name, source, self.bags[source].T))
        elif kind in ("Conv1D", "Conv2D", "Conv3D"):
            self._convolution(name, config, source)
        elif kind == "BatchNormalization":
            self._batch_normalization(name, layer, source)
        else:
            self.steps.append(_plain(name, kind, config, sources, self.channels_last))

    def _dense(self, name: str, layer: dict[str, Any], source: str) -> None:
        config, shape = layer["config"], layer.get("build_config", {}).get("input_shape", [None, None])
        if len(shape) != 2:
            raise UnsupportedError(f"Dense over {len(shape) - 1} axes")
        kernel, *bias = self.weights.of(name, 2 if config["use_bias"] else 1)
        self.steps.append(Dense(name, source, kernel.T, bias[0] if bias else None))
        self._activate(name, config["activation"])

    def _activate(self, name: str, activation: Any) -> None:
        """Add the activation that is a setting of a layer with weights."""
        if activation != "linear":
            self.steps.append(_activation(f"{name} activation", name, activation))

    def _input(self, name: str, shape: list[int | None]) -> Input:
        sizes = [size or 0 for size in shape[1:]]
        if not sizes or not all(sizes):
            return Input(name, None)
        axes = (sizes[-1], *sizes[:-1]) if self.channels_last else tuple(sizes)
        return Input(name, int(np.prod(sizes)), axes if len(axes) > 1 else None)

    def _convolution(self, name: str, config: dict[str, Any], source: str) -> None:
        if config["padding"] not in ("valid", "same"):
            raise UnsupportedError(f'a convolution with the padding "{config["padding"]}"')
        kernel, *bias = self.weights.of(name, 2 if config["use_bias"] else 1)
        groups, dilation = config.get("groups", 1), config.get("dilation_rate") or [1] * (kernel.ndim - 2)
        weight = whole_filters(np.moveaxis(kernel, (-1, -2), (0, 1)), groups, dilation)
        padding = _padding(config["padding"], weight.ndim - 2)
        self.steps.append(
            Convolve(name, source, weight, bias[0] if bias else None, tuple(config["strides"]), padding)
        )
        self._activate(name, config["activation"])

    def _embedding(self, name: str, config: dict[str, Any], source: str) -> None:
        step = next((step for step in reversed(self.steps) if step.name == source), None)
        if not isinstance(step, Input):
            raise UnsupportedError("an Embedding whose source is not an input")
        (self.bags[name],) = self.weights.of(name, 1)
        self.masked |= {name} if config.get("mask_zero") else set()
        self.steps[self.steps.index(step)] = Input(
            source, len(self.bags[name]), is_sparse=True, scale="mean", last=step.width
        )
        self.steps.append(Same(name, source))

    def _recurrent(self, name: str, kind: str, config: dict[str, Any], sources: list[str]) -> None:
        """Add a recurrent layer over the features of an Embedding, or over the states of another one."""
        source, *others = sources
        if source in self.bags and any(
            isinstance(step, Dense) and step.source == source for step in self.steps
        ):
            raise UnsupportedError(f"{kind} of an Embedding that is also averaged")
        if source in self.bags:
            step = next(
                step
                for step in self.steps
                if isinstance(step, Input) and Same(source, step.name) in self.steps
            )
            self.steps[self.steps.index(step)] = replace(step, scale="none", is_sequence=True)
            self.steps[self.steps.index(Same(source, step.name))] = Dense(
                source, step.name, self.bags.pop(source).T
            )
            self.along.add(source)
        elif source not in self.along or others:
            raise UnsupportedError(f"{kind} whose source is not an Embedding or another recurrent layer")
        self.steps.append(recurrent(name, kind, config, source, self.weights))
        self.along |= {name} if config.get("return_sequences") else set()

    def _batch_normalization(self, name: str, layer: dict[str, Any], source: str) -> None:
        config, shape = layer["config"], layer.get("build_config", {}).get("input_shape", [None, None])
        axis = config.get("axis", -1)
        channels = -1 if self.channels_last else 1
        if (axis[0] if isinstance(axis, list) else axis) not in (channels, channels % len(shape)):
            raise UnsupportedError("BatchNormalization of an axis other than the channels")
        numbers = iter(self.weights.of(name, 2 + config["scale"] + config["center"]))
        scale = next(numbers) if config["scale"] else np.float32(1)
        shift = next(numbers) if config["center"] else np.float32(0)
        mean, variance = numbers
        factor = scale / np.sqrt(variance + np.float32(config["epsilon"]))
        self.steps.append(Affine(name, source, factor, shift - mean * factor))


def _activation(name: str, source: str, activation: Any) -> Operation:
    """Return the operation of an activation by its Keras name."""
    special: dict[str, Any] = {
        "elu": {"kind": "elu", "alpha": 1.0},
        "leaky_relu": {"kind": "leaky_relu", "slope": 0.2},
        "swish": "silu",
    }
    known = special.get(str(activation), activation if activation in _ACTIVATIONS else None)
    if known is None:
        raise UnsupportedError(f"the activation {activation}")
    return Activate(name, source, known, by_place=known == "softmax")


def _padding(word: str, axes: int) -> Padding:
    return "same" if word == "same" else ((0, 0),) * axes


def _pool(name: str, kind: str, config: dict[str, Any], source: str) -> Operation:
    """Return the operation of a pooling layer, such as MaxPooling2D or GlobalAveragePooling2D."""
    function = "max" if "Max" in kind else "average"
    if kind.startswith("Global"):
        if config.get("keepdims"):
            raise UnsupportedError(f"{kind} with keepdims")
        return Pool(name, source, function)
    kernel = tuple(config["pool_size"])
    return Pool(
        name,
        source,
        function,
        kernel,
        tuple(config["strides"] or kernel),
        _padding(config["padding"], len(kernel)),
    )


def _plain(
    name: str, kind: str, config: dict[str, Any], sources: list[str], channels_last: bool
) -> Operation:
    """Return the operation of a layer without weights."""
    source = sources[0] if sources else ""
    match kind:
        case "Activation":
            return _activation(name, source, config["activation"])
        case pool if re.fullmatch(r"(Global)?(Max|Average)Pooling[123]D", pool):
            return _pool(name, pool, config, source)
        case "ReLU" if not config.get("max_value") and not config.get("threshold"):
            return leaky(name, source, float(config.get("negative_slope", 0)))
        case "LeakyReLU":
            return leaky(name, source, float(config.get("negative_slope", config.get("alpha", 0.3))))
        case "ELU":
            return Activate(name, source, {"kind": "elu", "alpha": float(config["alpha"])})
        case "Softmax" if config.get("axis", -1) in (-1, 1):
            return Activate(name, source, "softmax", by_place=True)
        case "Dropout":
            return Drop(name, source, float(config["rate"]))
        case "Flatten":
            return Same(name, source, channels_last)
        case "Concatenate" if config.get("axis", -1) == (-1 if channels_last else 1):
            return Join(name, tuple(sources))
        case "Add":
            return Add(name, tuple(sources))
        case "Rescaling" if isinstance(config["scale"], int | float) and isinstance(
            config["offset"], int | float
        ):
            return Affine(name, source, float(config["scale"]), float(config["offset"]))
        case _:
            raise UnsupportedError(kind)


def _tensors(value: Any) -> Iterator[str]:
    """Yield the names of the layers in the arguments of a call."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        yield str(value["config"]["keras_history"][0])
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif (
        isinstance(value, list) and len(value) > 2 and isinstance(value[0], str) and isinstance(value[1], int)
    ):
        yield value[0]  # before Keras 3: layer, node, tensor
    elif isinstance(value, list):
        for inner in value:
            yield from _tensors(inner)


def _triples(value: Any) -> list[tuple[str, int, int]]:
    """Return outputs as (layer, node, tensor); Keras writes a single one without the outer list."""
    return [tuple(value)] if value and isinstance(value[0], str) else [tuple(each) for each in value]
