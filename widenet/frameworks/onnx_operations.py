"""Translation of ONNX's nodes over dense values to operations."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from widenet.frameworks.onnx_values import attributes_of
from widenet.frameworks.onnx_windows import spatial
from widenet.frameworks.operations import (
    Activate,
    Add,
    Affine,
    Dense,
    Drop,
    Join,
    Operation,
    Pool,
    Same,
    Unknown,
    leaky,
)

_ACTIVATIONS = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Swish": "silu",
}
WITHOUT = {
    "LayerNormalization": (
        "LayerNormalization by the mean and variance of an example's own units, which no layer of widenet"
        " computes"
    ),
    "Loop": (
        "Loop; if it is an EmbeddingBag, export an Embedding and its sum or mean over the second axis instead"
    ),
}
"""Nodes without a counterpart, with the reason."""
_SELU = (1.6732632, 1.0507010)


@dataclass
class Values:
    """The values of a graph that have been read so far.

    Attributes:
        constants: Numbers of the constants, by name.
        shapes: Dimensions by name; None for an unknown dimension.
        opset: Version of ONNX's operators.
        step_of: Name of the operation that computes each value.
        gates: Sources of the sigmoids that are factors of a product, by the name of their value.
    """

    constants: dict[str, np.ndarray]
    shapes: dict[str, tuple[int | None, ...]]
    opset: int
    step_of: dict[str, str] = field(default_factory=dict)
    gates: dict[str, str] = field(default_factory=dict)

    def width(self, name: str) -> int | None:
        """Return the width of an example; the first dimension counts the examples."""
        dims = self.shapes.get(name, ())[1:]
        if not dims or any(not dim for dim in dims):
            return None
        return int(np.prod([dim or 0 for dim in dims]))

    def axes(self, name: str) -> tuple[int, ...] | None:
        """Return channels and axes of an example; None if it has none, or one is unknown."""
        dims = self.shapes.get(name, ())[1:]
        return tuple(dim or 0 for dim in dims) if len(dims) > 1 and all(dims) else None

    def rank(self, name: str) -> int:
        """Return the number of dimensions; 0 if it is unknown."""
        return len(self.shapes.get(name, ()))

    def is_last_axis(self, node: Any, axis: int) -> bool:
        """Return whether an axis of a node is the second one of a matrix [examples, units]."""
        return self.rank(node.input[0]) == 2 and axis in (1, -1)


def operation(values: Values, name: str, node: Any) -> Operation:
    """Return the operation of a node whose inputs have been read."""
    attributes = attributes_of(node)
    kind = node.op_type
    if kind in _ACTIVATIONS or kind in ("Softmax", "LogSoftmax", "LeakyRelu", "Elu", "Selu", "Gelu"):
        return _activation(values, name, node, attributes)
    if kind in ("Gemm", "MatMul"):
        return _dense(values, name, node, attributes)
    if kind in ("Add", "Sub", "Mul", "Div"):
        return _arithmetic(values, name, node)
    if kind in ("Identity", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze"):
        return _same(values, name, node, attributes)
    source = values.step_of.get(node.input[0], "")
    if kind == "Dropout":
        ratio = values.constants.get(node.input[1]) if len(node.input) > 1 else None
        return Drop(name, source, float(attributes.get("ratio", 0.5) if ratio is None else ratio))
    if kind in ("Clip", "Max"):
        return _clipped(values, name, node, attributes)
    if kind == "ReduceMean" and _is_over_places(values, node, attributes):
        return Pool(name, source, "average")
    if kind in ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LRN"):
        return spatial(
            name, node, attributes, source, [values.constants.get(each) for each in node.input[1:]]
        )
    if (
        kind == "Concat"
        and (attributes["axis"] == 1 or values.is_last_axis(node, attributes["axis"]))
        and all(each in values.step_of for each in node.input)
    ):
        return Join(name, tuple(values.step_of[each] for each in node.input))
    learns = attributes.get("training_mode", 0)
    if (
        kind == "BatchNormalization"
        and not learns
        and all(each in values.constants for each in node.input[1:])
    ):
        scale, shift, mean, variance = (values.constants[each].astype(np.float32) for each in node.input[1:5])
        factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
        return Affine(name, source, factor, shift - mean * factor)
    return Unknown(name, WITHOUT.get(kind, kind))


def _clipped(values: Values, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
    """Return the operation of a Clip or a Max: a ReLU if 0 is the lower bound and there is no upper one."""
    value, *others = node.input
    if node.op_type == "Max" and value in values.constants and len(others) == 1:
        value, others = others[0], [value]
    bounds = _bounds(values, node, attributes)
    if node.op_type == "Max":
        lowest = values.constants.get(others[0]) if len(others) == 1 else None
        bounds = None if lowest is None or lowest.size != 1 else (float(lowest.reshape(-1)[0]), np.inf)
    if bounds == (0.0, np.inf) and value in values.step_of:
        return Activate(name, values.step_of[value], "relu")
    return Unknown(name, f"{node.op_type} with bounds other than a minimum of 0")


def _bounds(values: Values, node: Any, attributes: dict[str, Any]) -> tuple[float, float] | None:
    """Return minimum and maximum of a Clip; None if they are not constant."""
    bounds = []
    for place, (key, default) in enumerate((("min", -np.inf), ("max", np.inf)), start=1):
        name = node.input[place] if len(node.input) > place else ""
        if name and (name not in values.constants or values.constants[name].size != 1):
            return None
        bounds.append(
            float(values.constants[name].reshape(-1)[0]) if name else float(attributes.get(key, default))
        )
    return bounds[0], bounds[1]


def _is_over_places(values: Values, node: Any, attributes: dict[str, Any]) -> bool:
    """Return whether a ReduceMean averages over all axes but the channels.

    PyTorch exports a global average pooling in this form.
    """
    axes = (
        attributes.get("axes")
        if len(node.input) < 2
        else values.constants.get(node.input[1], np.zeros(0)).tolist()
    )
    rank = values.rank(node.input[0])
    return rank > 2 and sorted(axis % rank for axis in axes or []) == list(range(2, rank))


def _activation(values: Values, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
    source, kind = values.step_of[node.input[0]], node.op_type
    if kind in _ACTIVATIONS:
        is_plain = kind != "Swish" or attributes.get("alpha", 1.0) == 1
        return Activate(name, source, _ACTIVATIONS[kind]) if is_plain else Unknown(name, "Swish with alpha")
    if kind == "LeakyRelu":
        return leaky(name, source, float(attributes.get("alpha", 0.01)))
    if kind == "Elu":
        return Activate(name, source, {"kind": "elu", "alpha": float(attributes.get("alpha", 1.0))})
    if kind in ("Softmax", "LogSoftmax") and values.is_last_axis(
        node, attributes.get("axis", -1 if values.opset >= 13 else 1)
    ):
        return Activate(name, source, "softmax", is_logarithm=kind == "LogSoftmax")
    if kind == "Selu" and np.allclose(
        [attributes.get("alpha", _SELU[0]), attributes.get("gamma", _SELU[1])], _SELU, rtol=1e-6
    ):
        return Activate(name, source, "selu")
    if kind == "Gelu" and attributes.get("approximate", b"none") == b"none":
        return Activate(name, source, "gelu")
    return Unknown(name, f"{kind} of another form")


def _dense(values: Values, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
    value, matrix, *more = node.input
    bias = values.constants.get(more[0]) if more and more[0] else None
    if (
        value not in values.step_of
        or matrix not in values.constants
        or values.constants[matrix].ndim != 2
        or values.rank(value) != 2
    ):
        return Unknown(
            name, f"{node.op_type} that is not of a matrix [examples, width] with constant weights"
        )
    if attributes.get("transA", 0) or (more and more[0] and bias is None):
        return Unknown(name, "Gemm of another form")
    weight = values.constants[matrix].astype(np.float32) * np.float32(attributes.get("alpha", 1.0))
    weight = weight if attributes.get("transB", 0) else weight.T
    if bias is not None:
        if bias.size != 1 and (bias.size != len(weight) or bias.shape[-1] != len(weight)):
            return Unknown(name, "Gemm of another form")
        bias = np.broadcast_to(bias.astype(np.float32).reshape(-1), len(weight)) * np.float32(
            attributes.get("beta", 1.0)
        )
    return Dense(name, values.step_of[value], weight, bias)


def _arithmetic(values: Values, name: str, node: Any) -> Operation:
    kind, (first, second) = node.op_type, node.input
    if kind == "Mul" and values.gates.get(second, values.gates.get(first)) in (first, second):
        return Activate(name, values.step_of[first], "silu")
    if first in values.step_of and second in values.step_of:
        sources = (values.step_of[first], values.step_of[second])
        return Add(name, sources) if kind == "Add" else Unknown(name, kind)
    value, constant = (second, first) if first in values.constants else (first, second)
    source, array = values.step_of[value], values.constants[constant].astype(np.float32)
    place = max(values.rank(value), 2) - 1  # axis of the units or channels, counted from the end
    if array.size > 1 and (array.ndim < place or array.shape[-place] != array.size):
        return Unknown(name, f"{kind} with a constant of several rows")
    if kind == "Add":
        return Affine(name, source, shift=array)
    if kind == "Mul":
        return Affine(name, source, scale=array)
    if kind == "Sub":
        return (
            Affine(name, source, shift=-array)
            if value == first
            else Affine(name, source, scale=-1.0, shift=array)
        )
    return Affine(name, source, scale=1 / array) if value == first and array.all() else Unknown(name, kind)


def _same(values: Values, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
    """Return the operation of a node that changes only shape or type and keeps each example's numbers."""
    kind, value = node.op_type, node.input[0]
    widths = (values.width(value), values.width(node.output[0]))
    is_flat = kind == "Flatten" and attributes.get("axis", 1) == 1
    keeps = kind == "Identity" or (kind == "Cast" and attributes["to"] in (1, 10, 11)) or is_flat
    is_as_wide = kind != "Cast" and widths[0] is not None and widths[0] == widths[1]
    if value in values.step_of and (keeps or is_as_wide):
        return Same(name, values.step_of[value], shape=values.axes(node.output[0]))
    return Unknown(name, kind)
