"""ONNX models read: those that widenet wrote by their documents, others node by node."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper

from widenet.errors import DataError
from widenet.frameworks.folding import folded
from widenet.frameworks.onnx_graph import names_path, weight_name
from widenet.frameworks.onnx_recurrent import Along, along_time
from widenet.frameworks.onnx_response import responses
from widenet.frameworks.onnx_values import attributes_of, constant, dimensions
from widenet.frameworks.onnx_windows import spatial
from widenet.frameworks.operations import (
    Activate,
    Add,
    Affine,
    Dense,
    Drop,
    Input,
    Join,
    Operation,
    Operations,
    Pool,
    Recur,
    Same,
    Unknown,
    leaky,
)
from widenet.interop.imported import Imported, Names
from widenet.interop.reading import reading
from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_ACTIVATIONS = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Swish": "silu",
}
_WITHOUT = {
    "LayerNormalization": (
        "LayerNormalization by the mean and variance of an example's own units, which no layer here computes"
    ),
    "Loop": (
        "Loop; if it is an EmbeddingBag, export an Embedding and its sum or mean over the second axis instead"
    ),
}
"""Nodes without a counterpart, and why."""
_SELU = (1.6732632, 1.0507010)


def read_onnx(path: Path) -> Imported:
    """The network of an ONNX file; raises DataError for one that is damaged, or that holds what has no
    counterpart.
    """
    invalid = (DecodeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
    with reading(path, "ONNX model", *invalid):
        model = onnx.load(path)
        onnx.checker.check_model(model if model.ByteSize() < 2**31 else str(path))
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        documents = {entry.key: entry.value for entry in model.metadata_props}
        if "widenet.network" in documents:
            return _own(path, documents, constants)
        return folded(str(path), _Reader(model, constants, dimensions(model)).run())


def _own(path: Path, documents: dict[str, str], constants: dict[str, np.ndarray]) -> Imported:
    """A network that widenet wrote, by the documents in it."""
    spec = NetworkSpec.parse(documents["widenet.network"], f"{path}: widenet.network")
    training = TrainingSpec.parse(documents.get("widenet.training", "{}"), f"{path}: widenet.training")
    records = json.loads(documents["widenet.fields"])
    fields = {
        str(name): Width(*(record[key] for key in ("width", "kind", "min_value", "max_value")))
        for name, record in records.items()
    }
    weights = {}
    for name, weight in bind(spec, training, fields).weights.items():
        found = constants.get(weight_name(name))
        if found is not None:
            weights[name] = found.T if weight.rows_are_features else found
    factors = {
        f"{layer.name} damping": constants.get(weight_name(f"{layer.name} damping")) for layer in spec.inputs
    }
    known = {name.removesuffix(" damping"): found for name, found in factors.items() if found is not None}
    document = spec.model_dump(mode="json")
    settings = {key: value for key, value in document.items() if key != "layers"}
    return Imported(
        str(path), document["layers"], fields, weights, known, training, settings, _names(path, fields)
    )


def _names(path: Path, fields: Mapping[str, Width]) -> dict[str, Names]:
    """The names of features that stand beside a network that widenet wrote; none where that file is gone."""
    beside = names_path(path)
    if not beside.is_file():
        return {}
    with reading(beside, "file of names"):
        found = {
            name: Names(**each)
            for name, each in json.loads(beside.read_text("utf-8")).items()
            if name in fields
        }
    for name, each in found.items():
        if not (_are_texts(each.ids) and _are_texts(each.titles)) or not (
            len(each.ids) == len(each.titles) == len(set(each.ids)) == fields[name].width
        ):
            rule = f"must have {fields[name].width:,} ids, all different, and as many titles"
            raise DataError(
                f'{beside}: field "{name}" {rule}. Export the network again, or move the file away.'
            )
    return found


def _are_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


class _Reader:
    def __init__(
        self, model: Any, constants: dict[str, np.ndarray], shapes: dict[str, tuple[int | None, ...]]
    ) -> None:
        self.graph, self.constants, self.shapes = model.graph, constants, shapes
        constants.update(
            {node.output[0]: found for node in self.graph.node if (found := constant(node)) is not None}
        )
        self.opset = next(
            (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1
        )
        self.steps: dict[str, Operation] = {}
        self.step_of: dict[str, str] = {}
        self.bags: dict[str, tuple[np.ndarray, str]] = {}
        self.gates: dict[str, str] = {}
        self.along = Along(constants, shapes)
        self.responses = responses(self.graph, constants, shapes)
        self.users: dict[str, list[Any]] = defaultdict(list)
        for node in self.graph.node:
            for name in node.input:
                self.users[name].append(node)

    def run(self) -> Operations:
        for value in self.graph.input:
            if value.name not in self.constants and value.type.tensor_type.elem_type in (1, 10, 11):
                self._add(value.name, Input(value.name, self._width(value.name), self._axes(value.name)))
        read = {*self.constants, *(name for response in self.responses.values() for name in response.inside)}
        for node in self.graph.node:
            is_read = node.output[0] in read or self._is_constant(node)
            if not is_read and not self.along.is_aside(node, attributes_of(node)) and not self._waits(node):
                self._read(node)
        outputs = {value.name: self.step_of.get(value.name, value.name) for value in self.graph.output}
        for value, name in outputs.items():
            if value in self.along.axes:
                outputs[value] = f"{name} as an output"
                self._add(value, Unknown(outputs[value], "every position of a sequence"))
            elif name not in self.steps:
                self._add(value, Unknown(name, "an output that is constant"))
        return Operations(list(self.steps.values()), outputs)

    def _read(self, node: Any) -> None:
        """Add what a node does."""
        name = self._free_name(node)
        if any(each in self.along.axes for each in node.input) or node.op_type in ("GRU", "LSTM"):
            self._read_along(name, node)
        elif (response := self.responses.get(node.output[0])) is not None and response.value in self.step_of:
            self._add(node.output[0], response.operation(name, self.step_of[response.value]))
        elif self._is_embedding(node):
            self._add(node.output[0], self._embedding(name, node))
        elif any(node.input) and all(self._is_known(source, node) for source in node.input if source):
            self._add(node.output[0], self._operation(name, node))
        else:
            self._add(node.output[0], self._lost(name, node))

    def _is_known(self, source: str, node: Any) -> bool:
        is_shape = node.op_type == "Reshape" and source == node.input[1]
        return (
            source in self.step_of
            or source in self.constants
            or source in self.bags
            or (is_shape and source in self.along.sizes)
        )

    def _is_embedding(self, node: Any) -> bool:
        """Whether a node gathers a row of a matrix for each index of an input [., .]."""
        if (
            node.op_type != "Gather"
            or attributes_of(node).get("axis", 0) != 0
            or node.input[0] not in self.constants
        ):
            return False
        given = next((value for value in self.graph.input if value.name == node.input[1]), None)
        is_whole = given is not None and given.type.tensor_type.elem_type in (6, 7)
        return is_whole and self.constants[node.input[0]].ndim == 2 and self._rank(node.input[1]) == 2

    def _embedding(self, name: str, node: Any) -> Operation:
        matrix, indices = self.constants[node.input[0]], node.input[1]
        found = Input(indices, len(matrix), is_sparse=True, is_sequence=True)
        before = self.steps.get(indices, found)
        if not isinstance(before, Input) or not before.is_sequence or before.width != found.width:
            return Unknown(name, "Gather of an input that is used otherwise too")
        self._add(indices, before)
        self.along.begin(node.output[0], indices)
        return Dense(name, indices, matrix.T.astype(np.float32))

    def _read_along(self, name: str, node: Any) -> None:
        """Add what a node does along a sequence."""
        attributes = attributes_of(node)
        source, values = (
            self.step_of.get(self.along.taken(node, attributes), ""),
            [value for value in node.output if value],
        )
        if self.along.is_stack(node, attributes):
            self.step_of[values[0]] = source
            return
        if node.op_type not in ("GRU", "LSTM"):
            is_first = node.input[0] in self.along.axes and not any(
                each in self.along.axes for each in node.input[1:]
            )
            odd = (
                self.along.turned(node, attributes)
                if is_first
                else f"{node.op_type} at every position of a sequence"
            )
            self._add(values[0], Same(name, source) if odd is None else Unknown(name, odd))
            if odd is None:
                self.along.is_over(values[0])
            return
        step = self.along.recurrent(name, node, attributes, source)
        for value in values:
            self._add(value, step)
        if isinstance(step, Recur):
            for given, time in self.along.time_of.items():
                before = self.steps[given]
                assert isinstance(before, Input)
                self._add(given, along_time(before, time, self.shapes.get(given, ())))
            if len(node.output) > 2 and node.output[2] and self.users[node.output[2]]:
                self._add(node.output[2], Unknown(f"{name} memory", "the memory of an LSTM at its end"))

    def _add(self, value: str, step: Operation) -> None:
        self.steps[step.name] = step
        self.step_of[value] = step.name

    def _free_name(self, node: Any) -> str:
        candidates = [node.name, *node.output]
        return next(
            (name for name in candidates if name and name not in self.steps),
            f"{node.op_type} {len(self.steps)}",
        )

    def _lost(self, name: str, node: Any) -> Operation:
        """A node that takes what is not read: an integer input that is used otherwise than as a bag of
        features.
        """
        return Unknown(name, _WITHOUT.get(node.op_type, node.op_type))

    def _width(self, name: str) -> int | None:
        """Numbers an example, the first dimension being the examples."""
        dims = self.shapes.get(name, ())[1:]
        if not dims or any(not dim for dim in dims):
            return None
        return int(np.prod([dim or 0 for dim in dims]))

    def _axes(self, name: str) -> tuple[int, ...] | None:
        """Channels and axes of an example, where all are known and there are any."""
        dims = self.shapes.get(name, ())[1:]
        return tuple(dim or 0 for dim in dims) if len(dims) > 1 and all(dims) else None

    def _is_constant(self, node: Any) -> bool:
        """Whether a node only turns a constant into another, which is then known."""
        if not node.input or any(name not in self.constants for name in node.input):
            return False
        array, attributes = self.constants[node.input[0]], attributes_of(node)
        turns: dict[str, Callable[[], np.ndarray]] = {
            "Identity": lambda: array,
            "Cast": lambda: array.astype(helper.tensor_dtype_to_np_dtype(attributes["to"])),
            "Transpose": lambda: array.transpose(attributes.get("perm")),
        }
        if node.op_type in turns:
            self.constants[node.output[0]] = turns[node.op_type]()
        return node.op_type in turns

    def _waits(self, node: Any) -> bool:
        """Whether a node is the first of two that make one operation: a gathering before its sum, a gate
        before its product.
        """
        users = self.users[node.output[0]]
        if (
            node.op_type == "Gather"
            and node.input[0] in self.constants
            and attributes_of(node).get("axis", 0) == 0
        ):
            matrix, indices = self.constants[node.input[0]], node.input[1]
            is_bag = (
                matrix.ndim == 2 and indices not in self.constants and len(self.shapes.get(indices, ())) == 2
            )
            if (
                is_bag
                and indices not in self.step_of
                and users
                and all(user.op_type in ("ReduceSum", "ReduceMean") for user in users)
            ):
                self.bags[node.output[0]] = (matrix, indices)
                return True
        if (
            node.op_type == "Sigmoid"
            and len(users) == 1
            and users[0].op_type == "Mul"
            and node.input[0] in users[0].input
        ):
            self.gates[node.output[0]] = node.input[0]
            self.step_of[node.output[0]] = self.step_of.get(node.input[0], node.input[0])
            return True
        return False

    def _operation(self, name: str, node: Any) -> Operation:
        attributes = attributes_of(node)
        kind = node.op_type
        if any(source in self.bags for source in node.input):
            return self._bag(name, node, attributes)
        if kind in _ACTIVATIONS or kind in ("Softmax", "LogSoftmax", "LeakyRelu", "Elu", "Selu", "Gelu"):
            return self._activation(name, node, attributes)
        if kind in ("Gemm", "MatMul"):
            return self._dense(name, node, attributes)
        if kind in ("Add", "Sub", "Mul", "Div"):
            return self._arithmetic(name, node)
        if kind in ("Identity", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze"):
            return self._same(name, node, attributes)
        source = self.step_of.get(node.input[0], "")
        if kind == "Dropout":
            ratio = self.constants.get(node.input[1]) if len(node.input) > 1 else None
            return Drop(name, source, float(attributes.get("ratio", 0.5) if ratio is None else ratio))
        if kind in ("Clip", "Max"):
            return self._clipped(name, node, attributes)
        if kind == "ReduceMean" and self._is_over_places(node, attributes):
            return Pool(name, source, "average")
        if kind in ("Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LRN"):
            return spatial(
                name, node, attributes, source, [self.constants.get(each) for each in node.input[1:]]
            )
        if (
            kind == "Concat"
            and (attributes["axis"] == 1 or self._is_last_axis(node, attributes["axis"]))
            and all(each in self.step_of for each in node.input)
        ):
            return Join(name, tuple(self.step_of[each] for each in node.input))
        learns = attributes.get("training_mode", 0)
        if (
            kind == "BatchNormalization"
            and not learns
            and all(each in self.constants for each in node.input[1:])
        ):
            scale, shift, mean, variance = (
                self.constants[each].astype(np.float32) for each in node.input[1:5]
            )
            factor = scale / np.sqrt(variance + attributes.get("epsilon", 1e-5))
            return Affine(name, source, factor, shift - mean * factor)
        return Unknown(name, _WITHOUT.get(kind, kind))

    def _clipped(self, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
        """A value within bounds: a rectifier where the only bound is 0 from below, as a Clip or a Max with
        0 has it.
        """
        value, *others = node.input
        if node.op_type == "Max" and value in self.constants and len(others) == 1:
            value, others = others[0], [value]
        bounds = self._bounds(node, attributes)
        if node.op_type == "Max":
            lowest = self.constants.get(others[0]) if len(others) == 1 else None
            bounds = None if lowest is None or lowest.size != 1 else (float(lowest.reshape(-1)[0]), np.inf)
        if bounds == (0.0, np.inf) and value in self.step_of:
            return Activate(name, self.step_of[value], "relu")
        return Unknown(name, f"{node.op_type} with other bounds than 0 from below")

    def _bounds(self, node: Any, attributes: dict[str, Any]) -> tuple[float, float] | None:
        """The least and the largest number that a Clip lets through; None where they are not constant."""
        found = []
        for place, (key, default) in enumerate((("min", -np.inf), ("max", np.inf)), start=1):
            given = node.input[place] if len(node.input) > place else ""
            if given and (given not in self.constants or self.constants[given].size != 1):
                return None
            found.append(
                float(self.constants[given].reshape(-1)[0]) if given else float(attributes.get(key, default))
            )
        return found[0], found[1]

    def _is_over_places(self, node: Any, attributes: dict[str, Any]) -> bool:
        """Whether a ReduceMean is over all places of a value with channels and axes, as PyTorch writes a
        global average.
        """
        axes = (
            attributes.get("axes")
            if len(node.input) < 2
            else self.constants.get(node.input[1], np.zeros(0)).tolist()
        )
        rank = self._rank(node.input[0])
        return rank > 2 and sorted(axis % rank for axis in axes or []) == list(range(2, rank))

    def _bag(self, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
        matrix, indices = self.bags[node.input[0]]
        axes = (
            attributes.get("axes")
            if len(node.input) < 2
            else self.constants.get(node.input[1], np.zeros(0)).tolist()
        )
        scale = "mean" if node.op_type == "ReduceMean" else "none"
        found = Input(indices, len(matrix), is_sparse=True, scale=scale)
        if (
            axes not in ([1], [-2])
            or attributes.get("keepdims", 1)
            or self.steps.get(indices, found) != found
        ):
            return Unknown(name, f"Gather and {node.op_type}")
        self._add(indices, found)
        return Dense(name, indices, matrix.T.astype(np.float32))

    def _activation(self, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
        source, kind = self.step_of[node.input[0]], node.op_type
        if kind in _ACTIVATIONS:
            is_plain = kind != "Swish" or attributes.get("alpha", 1.0) == 1
            return (
                Activate(name, source, _ACTIVATIONS[kind]) if is_plain else Unknown(name, "Swish with alpha")
            )
        if kind == "LeakyRelu":
            return leaky(name, source, float(attributes.get("alpha", 0.01)))
        if kind == "Elu":
            return Activate(name, source, {"kind": "elu", "alpha": float(attributes.get("alpha", 1.0))})
        if kind in ("Softmax", "LogSoftmax") and self._is_last_axis(
            node, attributes.get("axis", -1 if self.opset >= 13 else 1)
        ):
            return Activate(name, source, "softmax", is_logarithm=kind == "LogSoftmax")
        if kind == "Selu" and np.allclose(
            [attributes.get("alpha", _SELU[0]), attributes.get("gamma", _SELU[1])], _SELU, rtol=1e-6
        ):
            return Activate(name, source, "selu")
        if kind == "Gelu" and attributes.get("approximate", b"none") == b"none":
            return Activate(name, source, "gelu")
        return Unknown(name, f"{kind} of another form")

    def _dense(self, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
        value, matrix, *more = node.input
        bias = self.constants.get(more[0]) if more and more[0] else None
        if (
            value not in self.step_of
            or matrix not in self.constants
            or self.constants[matrix].ndim != 2
            or self._rank(value) != 2
        ):
            return Unknown(
                name, f"{node.op_type} of other than a matrix [examples, width] and constant weights"
            )
        if attributes.get("transA", 0) or (more and more[0] and bias is None):
            return Unknown(name, "Gemm of another form")
        weight = self.constants[matrix].astype(np.float32) * np.float32(attributes.get("alpha", 1.0))
        weight = weight if attributes.get("transB", 0) else weight.T
        if bias is not None:
            if bias.size != 1 and (bias.size != len(weight) or bias.shape[-1] != len(weight)):
                return Unknown(name, "Gemm of another form")
            bias = np.broadcast_to(bias.astype(np.float32).reshape(-1), len(weight)) * np.float32(
                attributes.get("beta", 1.0)
            )
        return Dense(name, self.step_of[value], weight, bias)

    def _arithmetic(self, name: str, node: Any) -> Operation:
        kind, (first, second) = node.op_type, node.input
        if kind == "Mul" and self.gates.get(second, self.gates.get(first)) in (first, second):
            return Activate(name, self.step_of[first], "silu")
        if first in self.step_of and second in self.step_of:
            sources = (self.step_of[first], self.step_of[second])
            return Add(name, sources) if kind == "Add" else Unknown(name, kind)
        value, constant = (second, first) if first in self.constants else (first, second)
        source, array = self.step_of[value], self.constants[constant].astype(np.float32)
        place = max(self._rank(value), 2) - 1  # where the units or channels stand, from the end
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
        return (
            Affine(name, source, scale=1 / array) if value == first and array.all() else Unknown(name, kind)
        )

    def _same(self, name: str, node: Any, attributes: dict[str, Any]) -> Operation:
        """A node that only changes the shape or the type, where every example keeps its numbers in their
        order.
        """
        kind, value = node.op_type, node.input[0]
        widths = (self._width(value), self._width(node.output[0]))
        is_flat = kind == "Flatten" and attributes.get("axis", 1) == 1
        keeps = kind == "Identity" or (kind == "Cast" and attributes["to"] in (1, 10, 11)) or is_flat
        is_as_wide = kind != "Cast" and widths[0] is not None and widths[0] == widths[1]
        if value in self.step_of and (keeps or is_as_wide):
            return Same(name, self.step_of[value], shape=self._axes(node.output[0]))
        return Unknown(name, kind)

    def _rank(self, name: str) -> int:
        return len(self.shapes.get(name, ()))

    def _is_last_axis(self, node: Any, axis: int) -> bool:
        return self._rank(node.input[0]) == 2 and axis in (1, -1)
