"""Import of ONNX's GRU and LSTM nodes, and of the nodes between a sequence's features and final state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from widenet.frameworks.operations import Input, Operation, Recur, Unknown

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""Positions in ONNX of widenet's gates: reset, update, new; or in, forget, new, out."""
_ACTIVATIONS = {"GRU": [b"Sigmoid", b"Tanh"], "LSTM": [b"Sigmoid", b"Tanh", b"Tanh"]}
_ARITHMETIC = ("Add", "Sub", "Mul", "Equal", "Where")
_SIZES = (
    "Shape",
    "Gather",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Reshape",
    "Concat",
    "Cast",
    "ConstantOfShape",
    *_ARITHMETIC,
)
"""Nodes that may compute with sizes of values only."""
_SHAPING = ("Expand", "Slice", "Gather", "Squeeze", "Unsqueeze", "Transpose", "Reshape", "Concat", "Identity")
"""Nodes that keep zeros."""
_UNITS, _DIRECTION, _LAST = "units", "direction", "last"
"""Axes of values: the units, the single direction of a recurrent layer, the newest position."""


@dataclass
class Along:
    """The values along sequences, and the sizes and zeros that they are computed with.

    Attributes:
        constants: Constants of the model, by name.
        shapes: Shapes of the model's values, by name.
        axes: Meaning of each axis of the values along a sequence.
        time_of: Axis of positions, by the name of an input.
        stacks: Final states of several layers, concatenated along the axis of the direction.
        sizes: Values that hold only sizes of other values.
        extents: Axes whose lengths these sizes are, if they are known.
        zeros: Values that hold only zeros.
    """

    constants: Mapping[str, np.ndarray]
    shapes: Mapping[str, tuple[int | None, ...]]
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    time_of: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, list[str]] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)
    extents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    zeros: set[str] = field(default_factory=set)

    def is_aside(self, node: Any, attributes: dict[str, Any]) -> bool:
        """Return whether a node computes sizes or zeros, and store them."""
        kind, inputs = node.op_type, [name for name in node.input if name]
        if kind == "Shape" or (kind in _SIZES and self._are_sizes(inputs)):
            is_float = (
                kind == "ConstantOfShape"
                and "value" in attributes
                and attributes["value"].data_type in (1, 10, 11)
            )
            is_float |= kind == "ConstantOfShape" and "value" not in attributes
            (self.zeros if is_float and self._is_filled_with_zero(attributes) else self.sizes).add(
                node.output[0]
            )
            extents = self._extents(node, attributes)
            if extents:
                self.extents[node.output[0]] = extents
            return True
        zeros, others = (inputs, []) if kind == "Concat" else (inputs[:1], inputs[1:])
        is_zero = kind in _SHAPING and bool(zeros) and all(self.is_zero(name) for name in zeros)
        if is_zero and all(name in self.sizes or name in self.constants for name in others):
            self.zeros.add(node.output[0])
            return True
        return False

    def _are_sizes(self, names: list[str]) -> bool:
        return any(name in self.sizes for name in names) and all(
            name in self.sizes or name in self.constants for name in names
        )

    def _is_filled_with_zero(self, attributes: dict[str, Any]) -> bool:
        return "value" not in attributes or not numpy_helper.to_array(attributes["value"]).any()

    def _extents(self, node: Any, attributes: dict[str, Any]) -> tuple[str, ...]:
        """Return the axes whose lengths a node computes; empty if it computes anything else.

        PyTorch computes the shape of states in this way.
        """
        kind, (first, *others) = node.op_type, node.input
        if kind == "Shape":
            return self.axes.get(first, ())[attributes.get("start", 0) : attributes.get("end")]
        known = [self.extents.get(name, ()) for name in node.input]
        if (
            kind == "Slice"
            and len(others) == 2
            and all(name in self.constants and self.constants[name].size == 1 for name in others)
        ):
            start, stop = (int(self.constants[name].reshape(-1)[0]) for name in others)
            return known[0][start:stop]
        if kind == "Concat" and all(known):
            return tuple(axis for each in known for axis in each)
        if kind == "Mul" and [_DIRECTION] in map(list, known) and all(len(each) == 1 for each in known):
            return known[1] if known[0] == (_DIRECTION,) else known[0]
        return (
            known[0]
            if kind == "Reshape" and len(known[0]) == 1 and list(self.constants.get(others[0], [])) == [-1]
            else ()
        )

    def is_zero(self, name: str) -> bool:
        """Return whether a value is absent or holds only zeros."""
        return not name or name in self.zeros or (name in self.constants and not self.constants[name].any())

    def begin(self, value: str, input_name: str) -> None:
        """Start a sequence at a value with the embedded features of an input of two axes."""
        self.axes[value] = (f"{input_name}.0", f"{input_name}.1", _UNITS)

    def source_value(self, node: Any, attributes: dict[str, Any]) -> str:
        """Return the source of a node: its first input, or the layer's state that it picks from a stack."""
        first, *others = node.input
        if (
            node.op_type == "Gather"
            and first in self.stacks
            and attributes.get("axis", 0) == 0
            and others[0] in self.constants
        ):
            stack, index = self.stacks[first], self.constants[others[0]]
            if index.ndim == 0 and -len(stack) <= int(index) < len(stack):
                return stack[int(index)]
        return str(first)

    def is_stack(self, node: Any, attributes: dict[str, Any]) -> bool:
        """Return whether a node concatenates the final states of layers, as PyTorch does, and store them."""
        axes = [self.axes.get(name, ()) for name in node.input]
        if (
            node.op_type != "Concat"
            or attributes["axis"] != 0
            or axes[0][:1] != (_DIRECTION,)
            or len(set(axes)) > 1
        ):
            return False
        self.stacks[node.output[0]] = [end for name in node.input for end in self.stacks.get(name, [name])]
        self.axes[node.output[0]] = axes[0]
        return True

    def rearrange(self, node: Any, attributes: dict[str, Any]) -> str | None:
        """Store the axes after a node that moves, drops or picks axes.

        Returns:
            None, or the reason why the node does something else.
        """
        kind, axes, source = node.op_type, self.axes[node.input[0]], self.source_value(node, attributes)
        result: tuple[str, ...] | None = None
        if source != node.input[0]:
            result = axes[1:]
        elif node.input[0] in self.stacks:
            result = None
        elif kind == "Identity":
            result = axes
        elif kind == "Transpose":
            result = tuple(axes[place] for place in attributes.get("perm", range(len(axes))[::-1]))
        elif kind == "Squeeze":
            places = self._whole(node, attributes, "axes", 1)
            dropped = {place % len(axes) for place in places}
            if places and all(axes[place] in (_DIRECTION, _LAST) for place in dropped):
                result = tuple(axis for place, axis in enumerate(axes) if place not in dropped)
        elif kind == "Gather" and node.input[1] in self.constants:
            place, index = attributes.get("axis", 0) % len(axes), self.constants[node.input[1]]
            if index.ndim == 0 and int(index) in self._picks(axes[place]):
                result = (*axes[:place], *axes[place + 1 :])
        elif kind == "Reshape":
            result = self._without_direction(node, attributes, axes)
        elif kind == "Slice":
            result = self._newest(node, attributes, axes)
        if result is None:
            return f"{kind} at every position of a sequence"
        self.axes[node.output[0]] = result
        return None

    def leave(self, value: str) -> None:
        """Forget a value that has only examples and units left: it is no longer along a sequence."""
        examples, *others = self.axes[value]
        if others == [_UNITS] and examples not in (_DIRECTION, _LAST, *self.time_of.values()):
            del self.axes[value]

    def _picks(self, axis: str) -> tuple[int, ...]:
        """Return the indices that pick the newest position of an axis, or its only entry."""
        return (-1,) if axis in self.time_of.values() else (0, -1) if axis in (_DIRECTION, _LAST) else ()

    def _without_direction(
        self, node: Any, attributes: dict[str, Any], axes: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """Return the axes after a Reshape that drops only the direction; None for any other one."""
        rest = tuple(axis for axis in axes if axis != _DIRECTION)
        if node.input[1] in self.extents:
            return rest if self.extents[node.input[1]] == rest else None
        sizes = [
            size
            for size, axis in zip(self.shapes.get(node.input[0], ()), axes, strict=False)
            if axis != _DIRECTION
        ]
        shape = self._whole(node, attributes, "shape", 1)
        is_same = len(shape) == len(sizes) == len(rest) and all(
            one in (-1, other) for one, other in zip(shape, sizes, strict=True)
        )
        return rest if is_same else None

    def _newest(self, node: Any, attributes: dict[str, Any], axes: tuple[str, ...]) -> tuple[str, ...] | None:
        starts, stops, places = (
            self._whole(node, attributes, name, at)
            for at, name in enumerate(("starts", "ends", "axes"), start=1)
        )
        steps = self._whole(node, attributes, "steps", 4)
        if (len(starts), len(stops), len(places)) != (1, 1, 1) or steps not in ([], [1]):
            return None
        place = places[0] % len(axes)
        if axes[place] not in self.time_of.values() or starts != [-1] or stops[0] < 2**31 - 1:
            return None
        return (*axes[:place], _LAST, *axes[place + 1 :])

    def _whole(self, node: Any, attributes: dict[str, Any], name: str, at: int) -> list[int]:
        """Return the whole numbers of an attribute or a constant input; empty if there is neither."""
        if name in attributes:
            return [int(number) for number in attributes[name]]
        known = self.constants.get(node.input[at]) if len(node.input) > at else None
        return [] if known is None else [int(number) for number in known.reshape(-1)]

    def recurrent(self, name: str, node: Any, attributes: dict[str, Any], source: str) -> Operation:
        """Return the operation of a GRU or an LSTM over a value, and store the axes of its outputs."""
        kind, axes = node.op_type, self.axes.get(node.input[0], ())
        batch_first = bool(attributes.get("layout", 0))
        if len(axes) != 3 or axes[2] != _UNITS or any(axis in (_DIRECTION, _LAST) for axis in axes):
            return Unknown(name, f"{kind} whose source is not gathered rows or another recurrent layer")
        batch, time = axes[:2] if batch_first else axes[1::-1]
        input_name = time.rpartition(".")[0]
        problem = self._unsupported(node, attributes)
        if problem is None and self.time_of.setdefault(input_name, time) != time:
            problem = "positions along another axis than in another layer"
        if problem is not None:
            return Unknown(name, f"{kind} with {problem}")
        whole = (batch, time, _DIRECTION, _UNITS) if batch_first else (time, _DIRECTION, batch, _UNITS)
        end = (batch, _DIRECTION, _UNITS) if batch_first else (_DIRECTION, batch, _UNITS)
        self.axes |= {value: shape for value, shape in zip(node.output, (whole, end), strict=False) if value}
        weight, state_weight = (_reordered(self.constants[each][0], kind) for each in node.input[1:3])
        bias = self.constants[node.input[3]][0] if len(node.input) > 3 and node.input[3] else None
        return Recur(
            name,
            source,
            "gru" if kind == "GRU" else "lstm",
            weight,
            state_weight,
            None if bias is None else _merged_bias(bias, kind),
        )

    def _unsupported(self, node: Any, attributes: dict[str, Any]) -> str | None:
        """Return a property of a node that widenet's layers lack; None if there is none."""
        kind, (_, *others) = node.op_type, node.input
        if attributes.get("direction", b"forward") != b"forward":
            return f'the direction "{attributes["direction"].decode()}"'
        if any(name and name not in self.constants for name in others[:3]) or len(others) < 2:
            return "weights that are not constant"
        if kind == "GRU" and not attributes.get("linear_before_reset", 0):
            return "the reset gate before the product (linear_before_reset=0)"
        if (
            attributes.get("activations", _ACTIVATIONS[kind]) != _ACTIVATIONS[kind]
            or attributes.get("input_forget", 0)
            or "clip" in attributes
        ):
            return "other activations, a clip or coupled gates"
        if len(others) > 3 and others[3]:
            return "a length for each sequence"
        return (
            None
            if all(self.is_zero(name) for name in others[4:])
            else "an initial state other than zeros, or peepholes"
        )


def along_time(step: Input, time: str, sizes: tuple[int | None, ...]) -> Input:
    """Limit a sequence input to the number of positions that the model's axis `time` has, if it is known."""
    place = int(time.rpartition(".")[2])
    return replace(step, last=sizes[place] if len(sizes) > place and sizes[place] else None)


def _reordered(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Reorder the gates along the first axis to widenet's order, float32."""
    parts = np.split(numbers.astype(np.float32), len(_GATES[kind]))
    return np.concatenate([parts[gate] for gate in _GATES[kind]])


def _merged_bias(bias: np.ndarray, kind: str) -> np.ndarray:
    """Merge the biases of inputs and previous state to [4 units].

    They are added up, except those of a GRU's new state, which stay apart.
    """
    to_sums, to_state = (_reordered(part, kind) for part in np.split(bias, 2))
    shared = len(to_sums) if kind == "LSTM" else 2 * len(to_sums) // 3
    return np.concatenate([to_sums[:shared] + to_state[:shared], to_sums[shared:], to_state[shared:]])
