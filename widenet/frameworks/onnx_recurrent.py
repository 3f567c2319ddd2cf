"""ONNX's GRU and LSTM nodes read, and what leads from the features of a sequence to the state at its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from widenet.frameworks.operations import Input, Operation, Recur, Unknown

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""Where ONNX has the gates that stand first, second and so on here: reset, update, new; in, forget, new,
out.
"""
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
"""What computes with the sizes of values alone."""
_SHAPING = ("Expand", "Slice", "Gather", "Squeeze", "Unsqueeze", "Transpose", "Reshape", "Concat", "Identity")
"""What zeros stay zeros under."""
_UNITS, _DIRECTION, _LAST = "units", "direction", "last"
"""Axes of values: the units; the one direction of a recurrent layer; the newest position alone."""


@dataclass
class Along:
    """Values along sequences, and what stands beside them.

    constants, shapes: of the model, by name. axes: of a value along a sequence, what each of its axes is.
    time_of: the axis of positions, by the name of an input.
    stacks: values that are the ends of several layers, one after the other along the axis of the direction.
    sizes: values that only say how large others are. extents: of those, the axes whose lengths they hold,
    where that is known.
    zeros: values that only hold zeros.
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
        """Whether a node gives sizes or zeros, which are then known."""
        kind, given = node.op_type, [name for name in node.input if name]
        if kind == "Shape" or (kind in _SIZES and self._are_sizes(given)):
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
        zeros, others = (given, []) if kind == "Concat" else (given[:1], given[1:])
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
        """The axes whose lengths a node gives, as PyTorch computes what to reshape states to; none where
        it gives anything else.
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
        """Whether a value is absent, or holds nothing but zeros."""
        return not name or name in self.zeros or (name in self.constants and not self.constants[name].any())

    def begin(self, value: str, given: str) -> None:
        """A value is what an input's features [., .] stand for, one by one."""
        self.axes[value] = (f"{given}.0", f"{given}.1", _UNITS)

    def taken(self, node: Any, attributes: dict[str, Any]) -> str:
        """Which value a node is about: its first input, or of a stack the one that it picks.

        Its inputs may be stacked by it.
        """
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
        """Whether a node puts the ends of several layers one after the other, as PyTorch does; they are
        then known.
        """
        found = [self.axes.get(name, ()) for name in node.input]
        if (
            node.op_type != "Concat"
            or attributes["axis"] != 0
            or found[0][:1] != (_DIRECTION,)
            or len(set(found)) > 1
        ):
            return False
        self.stacks[node.output[0]] = [end for name in node.input for end in self.stacks.get(name, [name])]
        self.axes[node.output[0]] = found[0]
        return True

    def turned(self, node: Any, attributes: dict[str, Any]) -> str | None:
        """Let a node that only moves, drops or picks axes give what it takes; None, or why it is none."""
        kind, axes, taken = node.op_type, self.axes[node.input[0]], self.taken(node, attributes)
        found: tuple[str, ...] | None = None
        if taken != node.input[0]:
            found = axes[1:]
        elif node.input[0] in self.stacks:
            found = None
        elif kind == "Identity":
            found = axes
        elif kind == "Transpose":
            found = tuple(axes[place] for place in attributes.get("perm", range(len(axes))[::-1]))
        elif kind == "Squeeze":
            places = self._whole(node, attributes, "axes", 1)
            dropped = {place % len(axes) for place in places}
            if places and all(axes[place] in (_DIRECTION, _LAST) for place in dropped):
                found = tuple(axis for place, axis in enumerate(axes) if place not in dropped)
        elif kind == "Gather" and node.input[1] in self.constants:
            place, index = attributes.get("axis", 0) % len(axes), self.constants[node.input[1]]
            if index.ndim == 0 and int(index) in self._ends(axes[place]):
                found = (*axes[:place], *axes[place + 1 :])
        elif kind == "Reshape":
            found = self._without_direction(node, attributes, axes)
        elif kind == "Slice":
            found = self._newest(node, attributes, axes)
        if found is None:
            return f"{kind} at every position of a sequence"
        self.axes[node.output[0]] = found
        return None

    def is_over(self, value: str) -> bool:
        """Whether a value has but examples and units left, and is forgotten here."""
        examples, *others = self.axes[value]
        is_plain = others == [_UNITS] and examples not in (_DIRECTION, _LAST, *self.time_of.values())
        if is_plain:
            del self.axes[value]
        return is_plain

    def _ends(self, axis: str) -> tuple[int, ...]:
        """The indices that pick the newest position, or the one direction or position that there is."""
        return (-1,) if axis in self.time_of.values() else (0, -1) if axis in (_DIRECTION, _LAST) else ()

    def _without_direction(
        self, node: Any, attributes: dict[str, Any], axes: tuple[str, ...]
    ) -> tuple[str, ...] | None:
        """The axes of a value that a Reshape only drops the one direction from."""
        left = tuple(axis for axis in axes if axis != _DIRECTION)
        if node.input[1] in self.extents:
            return left if self.extents[node.input[1]] == left else None
        sizes = [
            size
            for size, axis in zip(self.shapes.get(node.input[0], ()), axes, strict=False)
            if axis != _DIRECTION
        ]
        wanted = self._whole(node, attributes, "shape", 1)
        is_same = len(wanted) == len(sizes) == len(left) and all(
            one in (-1, other) for one, other in zip(wanted, sizes, strict=True)
        )
        return left if is_same else None

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
        """Whole numbers of an attribute, or of a constant input in its place; none where they are neither."""
        if name in attributes:
            return [int(number) for number in attributes[name]]
        known = self.constants.get(node.input[at]) if len(node.input) > at else None
        return [] if known is None else [int(number) for number in known.reshape(-1)]

    def recurrent(self, name: str, node: Any, attributes: dict[str, Any], source: str) -> Operation:
        """What a GRU or an LSTM does along a value; its outputs are then known."""
        kind, axes = node.op_type, self.axes.get(node.input[0], ())
        batch_first = bool(attributes.get("layout", 0))
        if len(axes) != 3 or axes[2] != _UNITS or any(axis in (_DIRECTION, _LAST) for axis in axes):
            return Unknown(name, f"{kind} of other than gathered rows or another recurrent layer")
        batch, time = axes[:2] if batch_first else axes[1::-1]
        given = time.rpartition(".")[0]
        odd = self._odd(node, attributes)
        if odd is None and self.time_of.setdefault(given, time) != time:
            odd = "positions along another axis than elsewhere"
        if odd is not None:
            return Unknown(name, f"{kind} with {odd}")
        whole = (batch, time, _DIRECTION, _UNITS) if batch_first else (time, _DIRECTION, batch, _UNITS)
        end = (batch, _DIRECTION, _UNITS) if batch_first else (_DIRECTION, batch, _UNITS)
        self.axes |= {value: shape for value, shape in zip(node.output, (whole, end), strict=False) if value}
        weight, own = (_in_order(self.constants[each][0], kind) for each in node.input[1:3])
        bias = self.constants[node.input[3]][0] if len(node.input) > 3 and node.input[3] else None
        return Recur(
            name,
            source,
            "gru" if kind == "GRU" else "lstm",
            weight,
            own,
            None if bias is None else _one_bias(bias, kind),
        )

    def _odd(self, node: Any, attributes: dict[str, Any]) -> str | None:
        """What a node has that no layer here has."""
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
            return "lengths of its own for each sequence"
        return (
            None
            if all(self.is_zero(name) for name in others[4:])
            else "a first state other than zeros, or peepholes"
        )


def along_time(given: Input, time: str, sizes: tuple[int | None, ...]) -> Input:
    """An input of a sequence, whose positions lie along an axis; at most so many as the model has room
    for.
    """
    place = int(time.rpartition(".")[2])
    return replace(given, last=sizes[place] if len(sizes) > place and sizes[place] else None)


def _in_order(numbers: np.ndarray, kind: str) -> np.ndarray:
    """The gates along the first axis, in the order of this project; float32."""
    parts = np.split(numbers.astype(np.float32), len(_GATES[kind]))
    return np.concatenate([parts[gate] for gate in _GATES[kind]])


def _one_bias(bias: np.ndarray, kind: str) -> np.ndarray:
    """The biases of sums and of the state before as [4 units]: added where both are, but for a new state's
    of a GRU.
    """
    to_sums, to_state = (_in_order(part, kind) for part in np.split(bias, 2))
    shared = len(to_sums) if kind == "LSTM" else 2 * len(to_sums) // 3
    return np.concatenate([to_sums[:shared] + to_state[:shared], to_sums[shared:], to_state[shared:]])
