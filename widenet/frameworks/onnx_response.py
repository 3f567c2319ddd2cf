"""Local response normalization as PyTorch exports it: nodes that square, average over channels, raise and
divide.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from widenet.frameworks.onnx_values import attributes_of
from widenet.frameworks.operations import Operation, Pool, Unknown

Dimensions = Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True)
class Response:
    """x / (k + alpha * mean of squares) ** beta, over some channels before and after each.

    value: the name of x. inside: the values of the nodes between x and the quotient.
    """

    value: str
    before: int
    after: int
    k: float
    alpha: float
    beta: float
    inside: frozenset[str]

    def operation(self, name: str, source: str) -> Operation:
        """The layer that computes it."""
        n = self.before + self.after + 1
        if self.before != (n - 1) // 2:
            return Unknown(
                name,
                f"LocalResponseNorm of {n} channels, {self.before} of them before each; here the longer half"
                " comes after",
            )
        return Pool(
            name, source, {"kind": "lrn", "n": n, "k": self.k, "alpha": self.alpha, "beta": self.beta}
        )


def responses(graph: Any, constants: Mapping[str, np.ndarray], shapes: Dimensions) -> dict[str, Response]:
    """Every local response normalization, by the name of the quotient that it ends in."""
    nodes = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    uses = Counter(name for node in graph.node for name in node.input)
    uses.update(value.name for value in graph.output)
    found = {}
    for node in graph.node:
        response = _Walk(nodes, constants, shapes).response(node) if node.op_type == "Div" else None
        if response is not None and all(uses[name] == 1 for name in response.inside):
            found[node.output[0]] = response
    return found


class _Walk:
    """The way back from a quotient."""

    def __init__(
        self, nodes: Mapping[str, Any], constants: Mapping[str, np.ndarray], shapes: Dimensions
    ) -> None:
        self.nodes, self.constants, self.shapes = nodes, constants, shapes
        self.inside: list[str] = []

    def response(self, node: Any) -> Response | None:
        """The normalization that a quotient ends; None where it is another."""
        value, divisor = node.input
        raised, beta = self._with_number(divisor, "Pow")
        added, k = self._with_number(raised, "Add")
        mean, alpha = self._with_number(added, "Mul")
        averaged = self._back(self._reshaped(mean), "AveragePool")
        padded = self._back(averaged.input[0], "Pad") if averaged is not None else None
        squared = self._back(self._reshaped(padded.input[0]), "Mul") if padded is not None else None
        around = (
            self._around(padded) if squared is not None and list(squared.input) == [value, value] else None
        )
        if (
            around is None
            or padded is None
            or k is None
            or alpha is None
            or beta is None
            or not self._averages(averaged, sum(around) + 1)
        ):
            return None
        is_placed = self._is_placed(padded.input[0], value) and self._sizes(mean) == self._sizes(value)
        return Response(value, *around, k, alpha, beta, frozenset(self.inside)) if is_placed else None

    def _back(self, name: str, kind: str) -> Any:
        """The node that gives a value, where it is of a kind."""
        node = self.nodes.get(name)
        if node is None or node.op_type != kind:
            return None
        self.inside.append(name)
        return node

    def _with_number(self, name: str, kind: str) -> tuple[str, float | None]:
        """The value that a node takes beside a constant number, and that number."""
        node = self._back(name, kind)
        if node is None:
            return "", None
        first, second = node.input
        first, second = (second, first) if kind != "Pow" and first in self.constants else (first, second)
        number = self.constants.get(second)
        return first, None if number is None or number.size != 1 else float(number.reshape(-1)[0])

    def _reshaped(self, name: str) -> str:
        """The value that nodes only put into other axes."""
        while (node := self.nodes.get(name)) is not None and node.op_type in (
            "Squeeze",
            "Unsqueeze",
            "Reshape",
        ):
            self.inside.append(name)
            name = node.input[0]
        return name

    def _around(self, padded: Any) -> tuple[int, int] | None:
        """How many channels of zeros stand before and after; channels are the third axis."""
        attributes, (_, pads, *more) = attributes_of(padded), padded.input
        is_zero = len(more) < 2 and all(
            not name or (name in self.constants and not self.constants[name].any()) for name in more
        )
        given = self.constants.get(pads, np.zeros(0, np.int64)).reshape(-1).tolist()
        rank = len(given) // 2
        if rank < 4 or not is_zero or attributes.get("mode", b"constant") != b"constant":
            return None
        before, after = given[2], given[rank + 2]
        is_plain = min(given) >= 0 and sum(given) == before + after
        return (before, after) if is_plain else None

    def _averages(self, node: Any, n: int) -> bool:
        """Whether a node gives the means of n channels."""
        attributes = attributes_of(node)
        axes = len(attributes["kernel_shape"])
        is_plain = not any(attributes.get("pads", [])) and attributes.get("auto_pad", b"NOTSET") in (
            b"NOTSET",
            b"VALID",
        )
        steps = [*attributes.get("strides", []), *attributes.get("dilations", [])]
        return (
            attributes["kernel_shape"] == [n, *[1] * (axes - 1)]
            and is_plain
            and all(step == 1 for step in steps)
        )

    def _is_placed(self, name: str, value: str) -> bool:
        """Whether a value has one channel of its own, and then the channels and places of another."""
        own, other = self._sizes(name), self._sizes(value)
        return (
            len(own) > 2
            and len(other) > 1
            and own[:2] == [1, other[0]]
            and 0 < prod(own[2:]) == prod(other[1:])
        )

    def _sizes(self, name: str) -> list[int]:
        """The dimensions of a value after that of the examples; 0 for one that is not known."""
        return [size or 0 for size in self.shapes.get(name, ())[1:]]
