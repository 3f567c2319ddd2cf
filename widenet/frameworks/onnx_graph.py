"""An ONNX graph under construction."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from widenet.model.activations import SELU_ALPHA, SELU_SCALE
from widenet.spec.activations import Activation, Elu, LeakyRelu

OPSET, IR_VERSION = 18, 9
"""Versions that a model needs, supported since ONNX 1.14 and onnxruntime 1.14 (2023)."""
END = 2**62
"""An end of slices beyond all entries; its negative is one before the first, for slices backwards."""

_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64
_TINY = np.finfo(np.float32).tiny


def weight_name(name: str) -> str:
    """Return the name of a weight among a model's initializers."""
    return f"weights/{name}"


def names_path(model: Path) -> Path:
    """Return the file beside a model that has the names of its features."""
    return model.with_name(f"{model.name}.json")


class Graph:
    """The nodes of a graph, in order, each named after its value.

    The body of a loop is a graph that sees the values of the outer graph. Names of inner values have a "/",
    so they never clash with inputs and outputs, whose names are those of fields and layers.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: dict[tuple[str, tuple[int, ...], bytes], Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node, and return the name of its value, or a list of names for several outputs."""
        names = [
            f"{self.prefix}/{kind}_{len(self.nodes)}" + (f".{number}" if number else "")
            for number in range(outputs)
        ]
        self.nodes.append(helper.make_node(kind, inputs, names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        """Return the name of a small constant; equal constants share one name."""
        array: np.ndarray = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(
                array, f"{self.prefix}/constant_{len(self.constants)}"
            )
        return str(self.constants[key].name)

    def whole(self, *values: int) -> str:
        """Return the name of a constant list of whole numbers."""
        return self.constant(values, np.int64)

    def input(self, name: str, dimensions: Sequence[int | str], is_whole: bool = False) -> str:
        """Add an input of the model, float32 or int64."""
        self.inputs.append(helper.make_tensor_value_info(name, _INT if is_whole else _FLOAT, dimensions))
        return name

    def output(self, name: str, value: str, dimensions: Sequence[int | str], is_whole: bool = False) -> None:
        """Add an output of the model, float32 or int64."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self.outputs.append(helper.make_tensor_value_info(name, _INT if is_whole else _FLOAT, dimensions))

    def slice(self, value: str, start: str, stop: str, axis: int = 0) -> str:
        """Return the entries [start, stop) along an axis."""
        return str(self.op("Slice", value, start, stop, self.whole(axis)))

    def ends(self, offsets: str) -> str:
        """Return the end of each example's entries, int64 [E], from offsets [E + 1]."""
        return self.slice(offsets, self.whole(1), self.whole(END))

    def starts(self, offsets: str) -> str:
        """Return the start of each example's entries, int64 [E], from offsets [E + 1]."""
        return self.slice(offsets, self.whole(0), self.whole(-1))

    def per_example(self, offsets: str, body: Callable[["Graph", Callable[[str], str]], str]) -> str:
        """Compute a value [H] for each example from its entries, and stack the values to [E, H].

        The computation is a loop, because onnxruntime's ScatterND adds in an order that changes from run to
        run. The loop also needs no memory for [Z, H].

        Args:
            offsets: Offsets of the examples' entries, int64 [E + 1].
            body: Adds the nodes of one example's value to a graph. Its second argument returns the example's
                slice of a value [Z].
        """
        inner = Graph(f"{self.prefix}/Loop_{len(self.nodes)}")
        number, condition = f"{inner.prefix}/example", f"{inner.prefix}/go_on"
        here = inner.op("Unsqueeze", number, inner.whole(0))
        following = inner.op("Add", here, inner.whole(1))
        start = inner.slice(offsets, here, following)
        stop = inner.slice(offsets, following, inner.op("Add", following, inner.whole(1)))
        value = body(inner, lambda entries: inner.slice(entries, start, stop))
        next_condition = inner.op("Identity", condition)
        scalars = [
            helper.make_tensor_value_info(number, _INT, []),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
        ]
        results = [
            helper.make_tensor_value_info(next_condition, TensorProto.BOOL, []),
            helper.make_tensor_value_info(value, _FLOAT, None),
        ]
        graph = helper.make_graph(inner.nodes, "example", scalars, results, list(inner.constants.values()))
        count = self.op("Squeeze", self.op("Shape", self.ends(offsets)))
        return str(self.op("Loop", count, self.constant(True, np.bool_), body=graph))

    def example_of_entry(self, offsets: str, indices: str) -> str:
        """Return the example of each entry, int64 [Z]: the number of examples that end before it."""
        length = self.op("Add", self.op("Shape", indices), self.whole(1))
        zeros = self.op("ConstantOfShape", length, value=helper.make_tensor("zero", _INT, [1], [0]))
        ends = self.ends(offsets)
        ones = self.op(
            "ConstantOfShape", self.op("Shape", ends), value=helper.make_tensor("one", _INT, [1], [1])
        )
        ended = self.op(
            "CumSum",
            self.op("ScatterElements", zeros, ends, ones, axis=0, reduction="add"),
            self.constant(0, np.int64),
        )
        return self.slice(ended, self.whole(0), self.whole(-1))

    def column(self, values: str) -> str:
        """Return a list [E] as a column [E, 1]."""
        return str(self.op("Unsqueeze", values, self.whole(1)))

    def activate(self, spec: Activation, logits: str) -> str:
        """Apply an activation to logits [E, N]."""
        match spec:
            case LeakyRelu(slope=slope):
                if slope > 1:
                    return str(self.op("Max", logits, self.op("Mul", logits, self.constant(slope))))
                return str(self.op("LeakyRelu", logits, alpha=slope))
            case Elu(alpha=alpha, scale=scale):
                return str(self.op("Selu", logits, alpha=alpha, gamma=scale))
        match spec.kind:
            case "linear":
                return logits
            case "selu":
                return str(self.op("Selu", logits, alpha=SELU_ALPHA, gamma=SELU_SCALE))
            case "softmax":
                return str(self.op("Softmax", logits, axis=-1))
            case "silu":
                return str(self.op("Mul", logits, self.op("Sigmoid", logits)))
            case "gelu":
                normal = self.op(
                    "Add", self.op("Erf", self.op("Mul", logits, self.constant(0.5**0.5))), self.constant(1)
                )
                return str(self.op("Mul", self.op("Mul", logits, self.constant(0.5)), normal))
            case "relu_max":
                return self._share(*[self.op("Relu", logits)] * 2)
            case "linear_max":
                return self._share(logits, self.op("Abs", logits))
            case kind:
                return str(self.op(kind.capitalize(), logits))

    def _share(self, parts: str, magnitudes: str) -> str:
        total = self.op("ReduceSum", magnitudes, self.whole(1))
        shares = self.op("Div", parts, self.op("Max", total, self.constant(_TINY)))
        return str(self.op("Where", self.op("Equal", total, self.constant(0)), self.constant(0), shares))
