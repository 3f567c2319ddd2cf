"""Keras models (.keras, the format of Keras 3) read: a zip of config.json and model.weights.h5. Nothing in it is run or unpickled."""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from widenet.errors import DataError
from widenet.interop.folding import folded
from widenet.interop.hdf5 import outside
from widenet.interop.imported import Imported
from widenet.interop.operations import (
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
    Same,
    Unknown,
    leaky,
)
from widenet.interop.reading import reading

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_LARGEST_CONFIG = 2**26
_ACTIVATIONS = ("linear", "sigmoid", "tanh", "relu", "selu", "softplus", "softsign", "softmax", "gelu", "silu")


def read_keras(path: Path) -> Imported:
    """The network of a .keras file; raises DataError for one that is damaged, or that holds what has no counterpart."""
    with reading(path, "Keras 3 model", zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        if archive.getinfo(_CONFIG).file_size > _LARGEST_CONFIG:
            raise DataError(f"{path}: {_CONFIG} must have at most {_LARGEST_CONFIG:,} bytes. Save the model again.")
        config = json.loads(archive.read(_CONFIG))
        with archive.open(_WEIGHTS) as packed, h5py.File(packed, "r") as weights:
            _check_alone(path, weights)
            operations = _Reader(config, weights, archive.getinfo(_WEIGHTS).file_size).run()
        return folded(str(path), operations)


def _check_alone(path: Path, weights: Any) -> None:
    """Raise DataError where some weights are said to be in another file."""
    name = outside(weights)
    if name is not None:
        raise DataError(f"{path}: all weights must lie in the model; {name!r} is in another file that it names. Save the model again.")


class _Reader:
    def __init__(self, config: dict[str, Any], weights: Any, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.kind, self.config, self.weights = config["class_name"], config["config"], weights
        self.layers: list[dict[str, Any]] = self.config["layers"]
        self.groups = self._groups()
        self.channels_last = all(layer["config"].get("data_format") != "channels_first" for layer in self.layers)
        self.steps: list[Operation] = []
        self.bags: dict[str, np.ndarray] = {}

    def run(self) -> Operations:
        if self.kind not in ("Sequential", "Functional"):
            return Operations([Unknown(str(self.config.get("name", "model")), f"a model of the class {self.kind}")], {})
        previous, ended = "", dict[str, str]()
        for layer in self.layers:
            name, before = layer["config"]["name"], len(self.steps)
            nodes = layer.get("inbound_nodes", [])
            sources = [previous] if self.kind == "Sequential" else list(_tensors(nodes[0])) if nodes else []
            if len(nodes) > 1:
                self.steps.append(Unknown(name, f"{layer['class_name']} that is used {len(nodes)} times"))
            else:
                self._read(name, layer, [ended.get(source, source) for source in sources])
            ended[name] = self.steps[-1].name if len(self.steps) > before else name
            previous = ended[name]
        last = [name for name, _, _ in _triples(self.config["output_layers"])] if self.kind == "Functional" else [name]
        return Operations(self.steps, {each: ended[each] for each in last})

    def _groups(self) -> dict[str, str]:
        """Where each layer's weights are: a group is called by its class, and those of one class are numbered."""
        seen: Counter[str] = Counter()
        groups = {}
        for layer in self.layers:
            plain = re.sub(r"\W+", "", layer["class_name"])
            snake = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", plain)).lower()
            groups[layer["config"]["name"]] = f"layers/{snake}" + (f"_{seen[snake]}" if seen[snake] else "")
            seen[snake] += 1
        by_name = {
            str(group["vars"].attrs.get("name", "")): f"layers/{key}" for key, group in self.weights["layers"].items() if "vars" in group
        }
        return {**groups, **{name: group for name, group in by_name.items() if name in groups}}

    def _numbers(self, name: str, count: int) -> list[np.ndarray]:
        """A layer's weights, in the order in which Keras made them."""
        found = self.weights[f"{self.groups[name]}/vars"]
        if len(found) != count:
            raise DataError(f'{self.weights.filename}: layer "{name}" must have {count} weights; got {len(found)}.')
        stored = [found[str(place)] for place in range(count)]
        if sum(each.nbytes for each in stored) > self.num_bytes:
            raise DataError(
                f'{self.weights.filename}: the weights of layer "{name}" must not be larger than their file. Save the model again.'
            )
        return [np.asarray(each[()], np.float32) for each in stored]

    def _read(self, name: str, layer: dict[str, Any], sources: list[str]) -> None:
        """Add what a layer does."""
        kind, config = layer["class_name"], layer["config"]
        source = sources[0] if sources else ""
        is_pooled = source in self.bags
        if is_pooled and kind != "GlobalAveragePooling1D":
            self.steps.append(Unknown(name, f"{kind} of an Embedding"))
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
            self.steps.append(Unknown(name, f"Dense over {len(shape) - 1} axes"))
            return
        kernel, *bias = self._numbers(name, 2 if config["use_bias"] else 1)
        self.steps.append(Dense(name, source, kernel.T, bias[0] if bias else None))
        self._activate(name, config["activation"])

    def _activate(self, name: str, activation: Any) -> None:
        """The activation that a layer with weights has in itself."""
        if activation != "linear":
            self.steps.append(_activation(f"{name} activation", name, activation))

    def _input(self, name: str, shape: list[int | None]) -> Input:
        sizes = [size or 0 for size in shape[1:]]
        if not sizes or not all(sizes):
            return Input(name, None)
        axes = (sizes[-1], *sizes[:-1]) if self.channels_last else tuple(sizes)
        return Input(name, int(np.prod(sizes)), axes if len(axes) > 1 else None)

    def _convolution(self, name: str, config: dict[str, Any], source: str) -> None:
        if any(step != 1 for step in config.get("dilation_rate", [])) or config.get("groups", 1) != 1 or config["padding"] == "causal":
            self.steps.append(Unknown(name, "a convolution with groups, dilations or another padding"))
            return
        kernel, *bias = self._numbers(name, 2 if config["use_bias"] else 1)
        weight = np.moveaxis(kernel, (-1, -2), (0, 1))
        padding = _padding(config["padding"], weight.ndim - 2)
        self.steps.append(Convolve(name, source, weight, bias[0] if bias else None, tuple(config["strides"]), padding))
        self._activate(name, config["activation"])

    def _embedding(self, name: str, config: dict[str, Any], source: str) -> None:
        given = self.steps[-1] if self.steps and self.steps[-1].name == source else next(s for s in self.steps if s.name == source)
        if config.get("mask_zero") or not isinstance(given, Input):
            self.steps.append(Unknown(name, "Embedding with mask_zero" if config.get("mask_zero") else "Embedding of other than an input"))
            return
        (self.bags[name],) = self._numbers(name, 1)
        self.steps[self.steps.index(given)] = Input(source, len(self.bags[name]), is_sparse=True, scale="mean")
        self.steps.append(Same(name, source))

    def _batch_normalization(self, name: str, layer: dict[str, Any], source: str) -> None:
        config, shape = layer["config"], layer.get("build_config", {}).get("input_shape", [None, None])
        axis = config.get("axis", -1)
        channels = -1 if self.channels_last else 1
        if (axis[0] if isinstance(axis, list) else axis) not in (channels, channels % len(shape)):
            self.steps.append(Unknown(name, "BatchNormalization of other than the channels"))
            return
        numbers = iter(self._numbers(name, 2 + config["scale"] + config["center"]))
        scale = next(numbers) if config["scale"] else np.float32(1)
        shift = next(numbers) if config["center"] else np.float32(0)
        mean, variance = numbers
        factor = scale / np.sqrt(variance + np.float32(config["epsilon"]))
        self.steps.append(Affine(name, source, factor, shift - mean * factor))


def _activation(name: str, source: str, activation: Any) -> Operation:
    """An activation by its Keras name."""
    special: dict[str, Any] = {"elu": {"kind": "elu", "alpha": 1.0}, "leaky_relu": {"kind": "leaky_relu", "slope": 0.2}, "swish": "silu"}
    known = special.get(str(activation), activation if activation in _ACTIVATIONS else None)
    return Unknown(name, f"the activation {activation}") if known is None else Activate(name, source, known)


def _padding(word: str, axes: int) -> Padding:
    return "same" if word == "same" else ((0, 0),) * axes


def _pool(name: str, kind: str, config: dict[str, Any], source: str) -> Operation:
    """A pooling layer, such as MaxPooling2D or GlobalAveragePooling2D."""
    function = "max" if "Max" in kind else "average"
    if kind.startswith("Global"):
        return Unknown(name, f"{kind} with keepdims") if config.get("keepdims") else Pool(name, source, function)
    kernel = tuple(config["pool_size"])
    return Pool(name, source, function, kernel, tuple(config["strides"] or kernel), _padding(config["padding"], len(kernel)))


def _plain(name: str, kind: str, config: dict[str, Any], sources: list[str], channels_last: bool) -> Operation:
    """A layer without weights."""
    source = sources[0] if sources else ""
    match kind:
        case "Activation":
            return _activation(name, source, config["activation"])
        case pool if re.fullmatch(r"(Global)?(Max|Average)Pooling[123]D", pool):
            return _pool(name, pool, config, source)
        case "ReLU" if not config.get("max_value") and not config.get("threshold"):
            return leaky(name, source, float(config.get("negative_slope", 0)))
        case "LeakyReLU":
            return leaky(name, source, float(config["negative_slope"]))
        case "ELU":
            return Activate(name, source, {"kind": "elu", "alpha": float(config["alpha"])})
        case "Softmax" if config.get("axis", -1) in (-1, 1):
            return Activate(name, source, "softmax")
        case "Dropout":
            return Drop(name, source, float(config["rate"]))
        case "Flatten":
            return Same(name, source, channels_last)
        case "Concatenate" if config.get("axis", -1) == (-1 if channels_last else 1):
            return Join(name, tuple(sources))
        case "Add":
            return Add(name, tuple(sources))
        case "Rescaling" if isinstance(config["scale"], int | float) and isinstance(config["offset"], int | float):
            return Affine(name, source, float(config["scale"]), float(config["offset"]))
        case _:
            return Unknown(name, kind)


def _tensors(value: Any) -> Iterator[str]:
    """The layers whose values stand in the arguments of a call."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        yield str(value["config"]["keras_history"][0])
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _tensors(inner)


def _triples(value: Any) -> list[tuple[str, int, int]]:
    """Outputs as (layer, node, tensor): one is written without the list around it."""
    return [tuple(value)] if value and isinstance(value[0], str) else [tuple(each) for each in value]
