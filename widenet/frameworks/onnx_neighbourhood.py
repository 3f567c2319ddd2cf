"""Neighbourhood terms in ONNX models: each unit's neighbours, and what they add to its logit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from widenet.errors import DataError
from widenet.frameworks.onnx_graph import Graph, weight_name
from widenet.spec.layers import Neighbourhood

_LARGEST = 1 + 2**-20
"""A similarity of 1 with the rounding of float32."""


def neighbours_name(output: str) -> str:
    """Return the name of the neighbours of an output's L units, int32 [L, K]; empty places have L."""
    return f"{output} neighbours"


def similarities_name(output: str) -> str:
    """Return the name of their similarities, float32 [L, K]; empty places have 0."""
    return f"{output} similarities"


def with_term(
    graph: Graph, logits: str, output: str, spec: Neighbourhood, offsets: str, indices: str, width: int
) -> str:
    """Return logits [E, L] with the term of `spec.layers.Neighbourhood`.

    Args:
        graph: The graph.
        logits: Logits without the term, [E, L].
        output: Name of the output.
        spec: Its term.
        offsets: Offsets of the examples' features, int64 [E + 1].
        indices: The features, int64 [Z].
        width: L.
    """
    none_has = graph.op(
        "ConstantOfShape",
        graph.whole(width + 1),
        value=helper.make_tensor("zero", TensorProto.FLOAT, [1], [0]),
    )

    def means(inner: Graph, own: Any) -> str:
        """Return the mean similarity of one example's features, each once, with every unit, [L]."""
        features = own(indices)
        ones = inner.op("Expand", inner.constant(1), inner.op("Shape", features))
        weights = _by_place(inner, none_has, features, ones) if spec.in_order else ones
        reduction = "add" if spec.in_order else "none"
        has = inner.op("ScatterElements", none_has, features, weights, axis=0, reduction=reduction)
        near = inner.op("Gather", has, weight_name(neighbours_name(output)))
        similar = inner.op("Mul", near, weight_name(similarities_name(output)))
        whole = inner.op("Max", inner.op("ReduceSum", has, inner.whole(0)), inner.constant(1))
        return str(inner.op("Div", inner.op("ReduceSum", similar, inner.whole(1), keepdims=0), whole))

    scaled = graph.op("Div", graph.per_example(offsets, means), graph.constant(spec.floor))
    term = graph.op("Log", graph.op("Add", scaled, graph.constant(1)))
    return str(graph.op("Add", logits, graph.op("Mul", term, graph.constant(spec.weight))))


def _by_place(inner: Graph, none_has: str, features: str, ones: str) -> str:
    """Return the weights of an example's features in order, [Z]: 1 / k at place k, 0 if one comes again."""
    numbers = inner.op("CumSum", ones, inner.constant(0, np.int64))
    last = inner.op("ScatterElements", none_has, features, numbers, axis=0, reduction="max")
    here = inner.op("Equal", inner.op("Gather", last, features), numbers)
    counts = inner.op("Cast", here, to=TensorProto.FLOAT)
    places = inner.op("CumSum", counts, inner.constant(0, np.int64), reverse=1)
    return str(inner.op("Div", counts, places))


def table_of(
    place: str, output: str, constants: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the neighbours and similarities of a model's output, int64 and float32; None if it has none.

    Args:
        place: The file, for messages.
        output: Name of the output.
        constants: Constants of the model by name.

    Raises:
        DataError: The neighbours of a unit are no different units, or a similarity is not from 0 to 1.
    """
    neighbours = constants.get(weight_name(neighbours_name(output)))
    if neighbours is None:
        return None
    similarities = constants.get(weight_name(similarities_name(output)), np.empty(0))
    rising = np.sort(neighbours.astype(np.int64), axis=-1)
    if (
        neighbours.ndim != 2
        or similarities.shape != neighbours.shape
        or (rising[:, :1] < 0).any()
        or (rising[:, -1:] > len(rising)).any()
        or ((rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] < len(rising))).any()
        or not ((similarities >= 0) & (similarities <= _LARGEST)).all()
    ):
        rule = f"must be up to {len(rising):,} different units, each with a similarity from 0 to 1"
        raise DataError(f'{place}: neighbours of output "{output}" {rule}. Export the network again.')
    return neighbours.astype(np.int64), similarities.astype(np.float32)
