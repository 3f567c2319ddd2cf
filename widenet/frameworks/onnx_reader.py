"""The graph of an ONNX file read node by node, as operations."""

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
    """Reads the nodes of a graph, one after the other, as operations.

    Two nodes may make one operation: the first waits. `Along` reads those along a sequence.
    """

    def __init__(
        self, model: Any, constants: dict[str, np.ndarray], shapes: dict[str, tuple[int | None, ...]]
    ) -> None:
        self.graph, self.constants, self.shapes = model.graph, constants, shapes
        constants.update(
            {node.output[0]: found for node in self.graph.node if (found := constant(node)) is not None}
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
        """Return the operations of the graph, those without a counterpart among them."""
        for value in self.graph.input:
            if value.name not in self.constants and value.type.tensor_type.elem_type in (1, 10, 11):
                self._add(
                    value.name, Input(value.name, self.values.width(value.name), self.values.axes(value.name))
                )
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
            self._add(
                node.output[0],
                self._bag(name, node) if node.input[0] in self.bags else operation(self.values, name, node),
            )
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
        return is_whole and self.constants[node.input[0]].ndim == 2 and self.values.rank(node.input[1]) == 2

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
        return Unknown(name, WITHOUT.get(node.op_type, node.op_type))

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
        found = Input(indices, len(matrix), is_sparse=True, scale=scale)
        if (
            axes not in ([1], [-2])
            or attributes.get("keepdims", 1)
            or self.steps.get(indices, found) != found
        ):
            return Unknown(name, f"Gather and {node.op_type}")
        self._add(indices, found)
        return Dense(name, indices, matrix.T.astype(np.float32))
