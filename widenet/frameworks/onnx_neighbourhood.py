"""Neighbourhood terms in ONNX models: each unit's neighbours, and what they add to its logit."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from widenet.frameworks.onnx_graph import Graph, weight_name
from widenet.spec.layers import Neighbourhood


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
