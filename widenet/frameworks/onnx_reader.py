"""Translation of an ONNX graph to operations, node by node."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from widenet.frameworks.onnx_operations import WITHOUT, Values, operation
from widenet.frameworks.onnx_recurrent import Along, along_time
from widenet.frameworks.onnx_response import responses
from widenet.frameworks.onnx_values import attributes_of, constant
from widenet.frameworks.operations import Dense, Input, Operation, Operations, Recur, Same, Unknown


class GraphReader:
    """Translates the nodes of a graph to operations, in order.

    If two nodes make one operation, the first one is deferred. `Along` handles nodes along a sequence.
    """

    def __init__(
        self, model: Any, constants: dict[str, np.ndarray], shapes: dict[str, tuple[int | None, ...]]
    ) -> None:
        self.graph, self.constants, self.shapes = model.graph, constants, shapes
        constants.update(
            {node.output[0]: array for node in self.graph.node if (array := constant(node)) is not None}
        )
        opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
        self.values = Values(constants, shapes, opset)
        self.step_of = self.values.step_of
        self.steps: dict[str, Operation] = {}
        self.bags: dict[str, tuple[np.ndarray, str]] = {}
        self.along = Along(constants, shapes)
        self.responses = responses(self.graph, constants, shapes)
        self.users: dict[str, list[Any]] = defaultdict(list)
        for node in self.graph.node:
            for name in node.input:
                self.users[name].append(node)

    def run(self) -> Operations:
        """Return the operations of the graph, including those without a counterpart."""
        for value in self.graph.input:
            if value.name not in self.constants and value.type.tensor_type.elem_type in (1, 10, 11):
                self._add(
                    value.name, Input(value.name, self.values.width(value.name), self.values.axes(value.name))
                )
        read = {*self.constants, *(name for response in self.responses.values() for name in response.inside)}
        for node in self.graph.node:
            is_read = node.output[0] in read or self._is_constant(node)
            if not is_read and not self.along.is_aside(node, attributes_of(node)) and not self._defers(node):
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
        """Add the operation of a node."""
        name = self._free_name(node)
        if any(each in self.along.axes for each in node.input) or node.op_type in ("GRU", "LSTM"):
            self._read_along(name, node)
        elif (response := self.responses.get(node.output[0])) is not None and response.value in self.step_of:
            self._add(node.output[0], response.operation(name, self.step_of[response.value]))
        elif self._is_embedding(node):
            self._add(node.output[0], self._embedding(name, node))
        elif any(node.input) and all(self._is_known(source, node) for source in node.input if source):
            self._add(
                node.output[0],
                self._bag(name, node) if node.input[0] in self.bags else operation(self.values, name, node),
            )
        else:
            self._add(node.output[0], Unknown(name, WITHOUT.get(node.op_type, node.op_type)))

    def _is_known(self, source: str, node: Any) -> bool:
        is_shape = node.op_type == "Reshape" and source == node.input[1]
        return (
            source in self.step_of
            or source in self.constants
            or source in self.bags
            or (is_shape and source in self.along.sizes)
        )

    def _is_embedding(self, node: Any) -> bool:
        """Return whether a node gathers a row of a matrix for each index of an input of two axes."""
        if (
            node.op_type != "Gather"
            or attributes_of(node).get("axis", 0) != 0
            or node.input[0] not in self.constants
        ):
            return False
        indices = next((value for value in self.graph.input if value.name == node.input[1]), None)
        is_whole = indices is not None and indices.type.tensor_type.elem_type in (6, 7)
        return is_whole and self.constants[node.input[0]].ndim == 2 and self.values.rank(node.input[1]) == 2

    def _embedding(self, name: str, node: Any) -> Operation:
        matrix, indices = self.constants[node.input[0]], node.input[1]
        step = Input(indices, len(matrix), is_sparse=True, is_sequence=True)
        before = self.steps.get(indices, step)
        if not isinstance(before, Input) or not before.is_sequence or before.width != step.width:
            return Unknown(name, "Gather of an input that is also used in another way")
        self._add(indices, before)
        self.along.begin(node.output[0], indices)
        return Dense(name, indices, matrix.T.astype(np.float32))

    def _read_along(self, name: str, node: Any) -> None:
        """Add the operation of a node along a sequence."""
        attributes = attributes_of(node)
        source = self.step_of.get(self.along.source_value(node, attributes), "")
        values = [value for value in node.output if value]
        if self.along.is_stack(node, attributes):
            self.step_of[values[0]] = source
            return
        if node.op_type not in ("GRU", "LSTM"):
            is_first = node.input[0] in self.along.axes and not any(
                each in self.along.axes for each in node.input[1:]
            )
            problem = (
                self.along.rearrange(node, attributes)
                if is_first
                else f"{node.op_type} at every position of a sequence"
            )
            self._add(values[0], Same(name, source) if problem is None else Unknown(name, problem))
            if problem is None:
                self.along.leave(values[0])
            return
        step = self.along.recurrent(name, node, attributes, source)
        for value in values:
            self._add(value, step)
        if isinstance(step, Recur):
            for input_name, time in self.along.time_of.items():
                before = self.steps[input_name]
                assert isinstance(before, Input)
                self._add(input_name, along_time(before, time, self.shapes.get(input_name, ())))
            if len(node.output) > 2 and node.output[2] and self.users[node.output[2]]:
                self._add(node.output[2], Unknown(f"{name} memory", "the final cell state of an LSTM"))

    def _add(self, value: str, step: Operation) -> None:
        self.steps[step.name] = step
        self.step_of[value] = step.name

    def _free_name(self, node: Any) -> str:
        candidates = [node.name, *node.output]
        return next(
            (name for name in candidates if name and name not in self.steps),
            f"{node.op_type} {len(self.steps)}",
        )

    def _is_constant(self, node: Any) -> bool:
        """Return whether a node converts a constant to another one, and store the result."""
        if not node.input or any(name not in self.constants for name in node.input):
            return False
        array, attributes = self.constants[node.input[0]], attributes_of(node)
        conversions: dict[str, Callable[[], np.ndarray]] = {
            "Identity": lambda: array,
            "Cast": lambda: array.astype(helper.tensor_dtype_to_np_dtype(attributes["to"])),
            "Transpose": lambda: array.transpose(attributes.get("perm")),
        }
        if node.op_type in conversions:
            self.constants[node.output[0]] = conversions[node.op_type]()
        return node.op_type in conversions

    def _defers(self, node: Any) -> bool:
        """Return whether a node is the first of two that make one operation.

        These are a Gather before a sum or mean, and a Sigmoid before a product.
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
            self.values.gates[node.output[0]] = node.input[0]
            self.step_of[node.output[0]] = self.step_of.get(node.input[0], node.input[0])
            return True
        return False

    def _bag(self, name: str, node: Any) -> Operation:
        attributes = attributes_of(node)
        matrix, indices = self.bags[node.input[0]]
        axes = (
            attributes.get("axes")
            if len(node.input) < 2
            else self.constants.get(node.input[1], np.zeros(0)).tolist()
        )
        scale = "mean" if node.op_type == "ReduceMean" else "none"
        step = Input(indices, len(matrix), is_sparse=True, scale=scale)
        if axes not in ([1], [-2]) or attributes.get("keepdims", 1) or self.steps.get(indices, step) != step:
            return Unknown(name, f"Gather and {node.op_type}")
        self._add(indices, step)
        return Dense(name, indices, matrix.T.astype(np.float32))
