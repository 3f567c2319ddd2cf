"""Sequences in ONNX exports, padded to one length and ordered by position, and the layers along them.

Letters in comments: E sequences, T positions of the longest, H heads of C numbers, U = H * C units.
"""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from widenet.frameworks.onnx_graph import END, Graph, weight_name
from widenet.model.layers.attention import EPSILON
from widenet.spec.layers import AttentionLayer, RecurrentLayer

_FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Padded:
    """The T newest positions of E sequences.

    Values along the sequences are rows [T * E, H]: first the first position of every example, then the second
    position, and so on. Rows beyond the end of an example are computed and ignored.

    Attributes:
        entries: Entry of the field at each row, int64 [T * E]; the number of entries for padding.
        ends: Row of each sequence's newest position, int64 [E]; T * E for an empty sequence.
        num_examples: Number of examples, int64 [1].
        num_times: T, int64 [1]; at least 1.
    """

    entries: str
    ends: str
    num_examples: str
    num_times: str


def padded(graph: Graph, offsets: str, indices: str, newest: int) -> Padded:
    """Return the newest positions of a field, at most `newest` of each sequence.

    Args:
        graph: The graph.
        offsets: int64 [E + 1].
        indices: int64 [Z].
        newest: Maximum of positions.
    """
    stops = graph.ends(offsets)
    lengths = graph.op("Min", graph.op("Sub", stops, graph.starts(offsets)), graph.whole(newest))
    num_times = graph.op("ReduceMax", graph.op("Concat", lengths, graph.whole(1), axis=0))
    times = graph.op(
        "Range", graph.constant(0, np.int64), graph.op("Squeeze", num_times), graph.constant(1, np.int64)
    )
    times = graph.op("Unsqueeze", times, graph.whole(1))
    entries = graph.op("Add", graph.op("Sub", stops, lengths), times)
    held = graph.op("Where", graph.op("Less", times, lengths), entries, graph.op("Shape", indices))
    num_examples = graph.op("Shape", stops)
    examples = graph.op(
        "Range", graph.constant(0, np.int64), graph.op("Squeeze", num_examples), graph.constant(1, np.int64)
    )
    last = graph.op("Add", graph.op("Mul", graph.op("Sub", lengths, graph.whole(1)), num_examples), examples)
    flat = graph.op("Reshape", held, graph.whole(-1))
    ends = graph.op("Where", graph.op("Greater", lengths, graph.whole(0)), last, graph.op("Shape", flat))
    return Padded(flat, ends, num_examples, num_times)


def at_positions(graph: Graph, entries: str, numbers: str, padding: str) -> str:
    """Return a field's numbers [Z] at each row [T * E], and `padding` [1] at rows without an entry."""
    return str(graph.op("Gather", graph.op("Concat", numbers, padding, axis=0), entries))


def newest(graph: Graph, rows: str, positions: Padded, width: int) -> str:
    """Return the rows [E, width] of the newest positions; zeros for an empty sequence."""
    zeros = graph.constant(np.zeros((1, width)))
    return str(graph.op("Gather", graph.op("Concat", rows, zeros, axis=0), positions.ends))


def states(
    graph: Graph, layer: RecurrentLayer, own: str, weight: str, bias: str | None, positions: Padded
) -> str:
    """Return the states [T * E, H] of a recurrent layer, with the formulas of `model.recurrence`.

    Args:
        graph: The graph.
        layer: The layer.
        own: Contribution of the sources to the gates, [T * E, G].
        weight: Weights of the previous state, [G, H].
        bias: Biases [4 H], or None.
        positions: Positions of the sequences.
    """
    carried_bias = None
    if bias is not None:
        own = graph.op("Add", own, graph.slice(bias, graph.whole(0), graph.whole(layer.sums)))
        if layer.cell == "gru":
            more = graph.slice(bias, graph.whole(layer.sums), graph.whole(4 * layer.units))
            carried_bias = graph.op("Concat", graph.constant(np.zeros(2 * layer.units)), more, axis=0)
    by_time = graph.op("Concat", graph.whole(-1), positions.num_examples, graph.whole(layer.sums), axis=0)
    shape = graph.op("Concat", positions.num_examples, graph.whole(layer.units), axis=0)
    zeros = graph.op("ConstantOfShape", shape, value=helper.make_tensor("zero", _FLOAT, [1], [0.0]))
    inner = Graph(f"{graph.prefix}/Scan_{len(graph.nodes)}")
    before = [
        f"{inner.prefix}/{name}" for name in (("state",) if layer.cell == "gru" else ("state", "memory"))
    ]
    here = f"{inner.prefix}/own"
    carried = inner.op("Gemm", before[0], weight, *([carried_bias] if carried_bias else []), transB=1)
    after = (_gru if layer.cell == "gru" else _lstm)(inner, here, carried, before)
    output = inner.op("Identity", after[0])
    inputs = [helper.make_tensor_value_info(name, _FLOAT, [None, layer.units]) for name in before]
    inputs.append(helper.make_tensor_value_info(here, _FLOAT, [None, layer.sums]))
    outputs = [helper.make_tensor_value_info(name, _FLOAT, [None, layer.units]) for name in (*after, output)]
    body = helper.make_graph(inner.nodes, "position", inputs, outputs, list(inner.constants.values()))
    *_, stacked = graph.op(
        "Scan",
        *[zeros] * len(before),
        graph.op("Reshape", own, by_time),
        outputs=len(outputs),
        body=body,
        num_scan_inputs=1,
    )
    return str(graph.op("Reshape", stacked, graph.whole(-1, layer.units)))


def _gru(inner: Graph, own: str, carried: str, before: list[str]) -> list[str]:
    """Return the new state h' = n + z (h - n)."""
    inputs, state = (inner.op("Split", value, outputs=3, axis=1, num_outputs=3) for value in (own, carried))
    r, z = (inner.op("Sigmoid", inner.op("Add", inputs[gate], state[gate])) for gate in (0, 1))
    n = inner.op("Tanh", inner.op("Add", inputs[2], inner.op("Mul", r, state[2])))
    return [inner.op("Add", n, inner.op("Mul", z, inner.op("Sub", before[0], n)))]


def _lstm(inner: Graph, own: str, carried: str, before: list[str]) -> list[str]:
    """Return the new states h' = o tanh(c') and c' = f c + i g."""
    i, f, g, o = inner.op("Split", inner.op("Add", own, carried), outputs=4, axis=1, num_outputs=4)
    i, f, g, o = inner.op("Sigmoid", i), inner.op("Sigmoid", f), inner.op("Tanh", g), inner.op("Sigmoid", o)
    memory = inner.op("Add", inner.op("Mul", f, before[1]), inner.op("Mul", i, g))
    return [inner.op("Mul", o, inner.op("Tanh", memory)), memory]


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
