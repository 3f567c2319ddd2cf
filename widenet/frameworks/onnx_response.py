"""Recognition of local response normalization in PyTorch's ONNX exports.

PyTorch exports it as nodes that square, average over channels, raise to a power and divide.
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
    """x / (k + alpha * mean of squares) ** beta, with the mean over neighbouring channels.

    Attributes:
        value: Name of x.
        before: Number of channels before each.
        after: Number of channels after each.
        k: The constant k.
        alpha: The factor alpha.
        beta: The exponent beta.
        inside: Names of the values between x and the quotient.
    """

    value: str
    before: int
    after: int
    k: float
    alpha: float
    beta: float
    inside: frozenset[str]

    def operation(self, name: str, source: str) -> Operation:
        """Return the operation of the normalization."""
        n = self.before + self.after + 1
        if self.before != (n - 1) // 2:
            return Unknown(
                name,
                f"LocalResponseNorm of {n} channels, {self.before} of them before each; widenet has the"
                " longer half after each",
            )
        return Pool(
            name, source, {"kind": "lrn", "n": n, "k": self.k, "alpha": self.alpha, "beta": self.beta}
        )


def responses(graph: Any, constants: Mapping[str, np.ndarray], shapes: Dimensions) -> dict[str, Response]:
    """Return all local response normalizations of a graph, by the name of their final quotient."""
    nodes = {node.output[0]: node for node in graph.node if len(node.output) == 1}
    uses = Counter(name for node in graph.node for name in node.input)
    uses.update(value.name for value in graph.output)
    by_quotient = {}
    for node in graph.node:
        response = _Matcher(nodes, constants, shapes).response(node) if node.op_type == "Div" else None
        if response is not None and all(uses[name] == 1 for name in response.inside):
            by_quotient[node.output[0]] = response
    return by_quotient


class _Matcher:
    """Follows the nodes of a normalization backwards from its quotient."""

    def __init__(
        self, nodes: Mapping[str, Any], constants: Mapping[str, np.ndarray], shapes: Dimensions
    ) -> None:
        self.nodes, self.constants, self.shapes = nodes, constants, shapes
        self.inside: list[str] = []

    def response(self, node: Any) -> Response | None:
        """Return the normalization that ends in a quotient; None for any other quotient."""
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
        """Return the node of a value if it has this type; otherwise None."""
        node = self.nodes.get(name)
        if node is None or node.op_type != kind:
            return None
        self.inside.append(name)
        return node

    def _with_number(self, name: str, kind: str) -> tuple[str, float | None]:
        """Return the variable input of a node of this type, and its constant number."""
        node = self._back(name, kind)
        if node is None:
            return "", None
        first, second = node.input
        first, second = (second, first) if kind != "Pow" and first in self.constants else (first, second)
        number = self.constants.get(second)
        return first, None if number is None or number.size != 1 else float(number.reshape(-1)[0])

    def _reshaped(self, name: str) -> str:
        """Return the value before nodes that only change the shape."""
        while (node := self.nodes.get(name)) is not None and node.op_type in (
            "Squeeze",
            "Unsqueeze",
            "Reshape",
        ):
            self.inside.append(name)
            name = node.input[0]
        return name

    def _around(self, padded: Any) -> tuple[int, int] | None:
        """Return the number of zero channels that a Pad adds before and after, along the third axis."""
        attributes, (_, pads, *more) = attributes_of(padded), padded.input
        is_zero = len(more) < 2 and all(
            not name or (name in self.constants and not self.constants[name].any()) for name in more
        )
        sizes = self.constants.get(pads, np.zeros(0, np.int64)).reshape(-1).tolist()
        rank = len(sizes) // 2
        if rank < 4 or not is_zero or attributes.get("mode", b"constant") != b"constant":
            return None
        before, after = sizes[2], sizes[rank + 2]
        is_plain = min(sizes) >= 0 and sum(sizes) == before + after
        return (before, after) if is_plain else None

    def _averages(self, node: Any, n: int) -> bool:
        """Return whether a node averages over n channels."""
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
        """Return whether a value has the shape of another with an additional channel axis of size 1."""
        own, other = self._sizes(name), self._sizes(value)
        return (
            len(own) > 2
            and len(other) > 1
            and own[:2] == [1, other[0]]
            and 0 < prod(own[2:]) == prod(other[1:])
        )

    def _sizes(self, name: str) -> list[int]:
        """Return the dimensions of a value without the examples; 0 for an unknown one."""
        return [size or 0 for size in self.shapes.get(name, ())[1:]]
