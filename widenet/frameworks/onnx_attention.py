"""Attention layers as ONNX nodes, with the formulas of `model.layers.attention`.

Letters in comments: E sequences, T positions of the longest, H heads of C numbers, U = H * C units.
"""

import numpy as np

from widenet.frameworks.onnx_graph import END, Graph, weight_name
from widenet.frameworks.onnx_sequences import Padded
from widenet.model.layers.attention import EPSILON
from widenet.spec.attention import AttentionLayer


def block(graph: Graph, layer: AttentionLayer, units: int, values: str, positions: Padded) -> str:
    """Return the outputs [T * E, U] of an attention layer, before its skips.

    Args:
        graph: The graph.
        layer: The layer.
        units: Number of its units.
        values: Values of its source, [T * E, U].
        positions: Positions of the sequences.
    """
    if layer.positions == "absolute":
        values = _placed(graph, layer, units, values, positions)
    values = graph.op("Add", values, _attended(graph, layer, units, values, positions))
    values = graph.op("Add", values, _fed_forward(graph, layer, values))
    return _normalized(graph, layer, "output", values) if layer.normalize_output else values


def _placed(graph: Graph, layer: AttentionLayer, units: int, values: str, positions: Padded) -> str:
    """Return values plus the vector of each position."""
    vectors = graph.slice(_weight(layer, "positions"), graph.whole(0), positions.num_times)
    by_time = _by_time(graph, values, positions, units)
    added = graph.op("Add", by_time, graph.op("Unsqueeze", vectors, graph.whole(1)))
    return str(graph.op("Reshape", added, graph.whole(-1, units)))


def _attended(graph: Graph, layer: AttentionLayer, units: int, values: str, positions: Padded) -> str:
    """Return what attention adds, [T * E, U].

    Padding comes after a sequence's own positions, so the mask of later positions hides it from them.
    """
    heads = layer.heads, units // layer.heads
    projected = _product(graph, layer, "projections", _normalized(graph, layer, "attention", values))
    parts = _by_time(graph, projected, positions, 3, *heads)
    parts = graph.op("Transpose", parts, perm=[2, 1, 3, 0, 4])
    queries, keys, contents = (  # [E, H, T, C] each
        graph.op("Gather", parts, graph.constant(part, np.int64), axis=0) for part in range(3)
    )
    queries = graph.op("Mul", queries, graph.constant(heads[1] ** -0.5))
    logits = graph.op("MatMul", queries, graph.op("Transpose", keys, perm=[0, 1, 3, 2]))
    if layer.positions == "relative":
        distant = _by_distance(graph, queries, _weight(layer, "positions"), heads, positions.num_times)
        logits = graph.op("Add", logits, distant)
    logits = graph.op("Add", logits, _later(graph, positions.num_times))
    read = graph.op("MatMul", graph.op("Softmax", logits, axis=-1), contents)
    joined = graph.op("Reshape", graph.op("Transpose", read, perm=[2, 0, 1, 3]), graph.whole(-1, units))
    return _product(graph, layer, "joined", joined)


def _by_distance(graph: Graph, queries: str, vectors: str, heads: tuple[int, int], num_times: str) -> str:
    """Return each query times the vector of its distance to each position up to its own, [E, H, T, T].

    Numbers of later positions have no meaning.
    """
    farthest = graph.op("Sub", num_times, graph.whole(1))
    falling = graph.op("Slice", vectors, farthest, graph.whole(-END), graph.whole(0), graph.whole(-1))
    placed = graph.op("Transpose", graph.op("Reshape", falling, graph.whole(-1, *heads)), perm=[1, 2, 0])
    # The numbers of position t, for distances from T - 1 down to 0, belong T - 1 - t columns further left.
    # With one more number in front of each row, rows of T of them shift each row by one column more.
    products = graph.op("Pad", graph.op("MatMul", queries, placed), graph.whole(0, 0, 0, 1, 0, 0, 0, 0))
    shape = graph.op("Concat", graph.whole(0, 0, -1), num_times, axis=0)  # 0 keeps a dimension
    return graph.slice(graph.op("Reshape", products, shape), graph.whole(1), graph.whole(END), 2)


def _later(graph: Graph, num_times: str) -> str:
    """Return -inf for positions later than each position, and 0 for others, [T, T]."""
    shape = graph.op("Concat", num_times, num_times, axis=0)
    hidden = graph.op("Expand", graph.constant(-np.inf), shape)
    return str(graph.op("Trilu", hidden, graph.constant(1, np.int64), upper=1))


def _fed_forward(graph: Graph, layer: AttentionLayer, values: str) -> str:
    """Return what the two fully connected layers add, [T * E, U]."""
    sums = _product(graph, layer, "inner", _normalized(graph, layer, "feed forward", values))
    return _product(graph, layer, "outer", graph.activate(layer.activation, sums))


def _normalized(graph: Graph, layer: AttentionLayer, name: str, values: str) -> str:
    """Return the layer normalization of values.

    ONNX's LayerNormalization is no alternative: onnxruntime 1.20 rounds its variances so coarsely that a row
    of nearly equal numbers becomes NaN.
    """
    axis = graph.whole(1)
    centred = graph.op("Sub", values, graph.op("ReduceMean", values, axis))
    variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), axis)
    deviation = graph.op("Sqrt", graph.op("Add", variance, graph.constant(EPSILON)))
    scaled = graph.op("Mul", graph.op("Div", centred, deviation), _weight(layer, f"{name} scale"))
    return str(graph.op("Add", scaled, _weight(layer, f"{name} shift")))


def _product(graph: Graph, layer: AttentionLayer, name: str, values: str) -> str:
    """Return values times a matrix of the layer, plus its biases."""
    return str(graph.op("Gemm", values, _weight(layer, name), _weight(layer, f"{name} bias"), transB=1))


def _by_time(graph: Graph, values: str, positions: Padded, *sizes: int) -> str:
    """Return rows [T * E, the product of sizes] as [T, E, *sizes]."""
    shape = graph.op("Concat", positions.num_times, positions.num_examples, graph.whole(*sizes), axis=0)
    return str(graph.op("Reshape", values, shape))


def _weight(layer: AttentionLayer, name: str) -> str:
    return weight_name(f"{layer.name}/{name}")
