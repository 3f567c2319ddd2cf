"""Sequences as ONNX computes them: positions padded to one length, side by side in time."""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from widenet.frameworks.onnx_graph import Graph
from widenet.spec.recurrent import RecurrentLayer

_FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Padded:
    """The newest positions of E sequences, T of each.

    Values along them flow as rows [T * E, H]: those of the first position of every example, then those of the
    second, and so on. What stands beyond an example's end is computed and never looked at.
    entries: int64 [T * E], the entry of the field that stands at each place; the number of entries where none
    does.
    ends: int64 [E], the row of each sequence's newest position; T * E of a sequence without any.
    num_examples: int64 [1].
    """

    entries: str
    ends: str
    num_examples: str


def padded(graph: Graph, offsets: str, indices: str, newest: int) -> Padded:
    """The newest positions, at most `newest` of each sequence, of a field's offsets [E + 1] and indices
    [Z].
    """
    stops = graph.ends(offsets)
    lengths = graph.op("Min", graph.op("Sub", stops, graph.starts(offsets)), graph.whole(newest))
    num_times = graph.op("ReduceMax", graph.op("Concat", lengths, graph.whole(1), axis=0), keepdims=0)
    times = graph.op("Range", graph.constant(0, np.int64), num_times, graph.constant(1, np.int64))
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
    return Padded(flat, ends, num_examples)


def at_positions(graph: Graph, entries: str, numbers: str, nothing: str) -> str:
    """What a field's numbers [Z] are at each place [T * E]. nothing: [1], what stands where no position
    is.
    """
    return str(graph.op("Gather", graph.op("Concat", numbers, nothing, axis=0), entries))


def newest(graph: Graph, rows: str, positions: Padded, width: int) -> str:
    """The rows [E, width] of the newest positions; zeros of a sequence without any."""
    zeros = graph.constant(np.zeros((1, width)))
    return str(graph.op("Gather", graph.op("Concat", rows, zeros, axis=0), positions.ends))


def states(
    graph: Graph, layer: RecurrentLayer, own: str, weight: str, bias: str | None, positions: Padded
) -> str:
    """The states [T * E, H] of a recurrent layer, as `model.recurrence` has them.

    own: what the sources give to the gates, [T * E, G]. weight: [G, H], of the state before. bias: [4 H], or
    None.
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
    shown = inner.op("Identity", after[0])
    takes = [helper.make_tensor_value_info(name, _FLOAT, [None, layer.units]) for name in before]
    takes.append(helper.make_tensor_value_info(here, _FLOAT, [None, layer.sums]))
    gives = [helper.make_tensor_value_info(name, _FLOAT, [None, layer.units]) for name in (*after, shown)]
    body = helper.make_graph(inner.nodes, "position", takes, gives, list(inner.constants.values()))
    *_, found = graph.op(
        "Scan",
        *[zeros] * len(before),
        graph.op("Reshape", own, by_time),
        outputs=len(gives),
        body=body,
        num_scan_inputs=1,
    )
    return str(graph.op("Reshape", found, graph.whole(-1, layer.units)))


def _gru(inner: Graph, own: str, carried: str, before: list[str]) -> list[str]:
    """h' = n + z (h - n)."""
    mine, theirs = (inner.op("Split", value, outputs=3, axis=1, num_outputs=3) for value in (own, carried))
    r, z = (inner.op("Sigmoid", inner.op("Add", mine[gate], theirs[gate])) for gate in (0, 1))
    n = inner.op("Tanh", inner.op("Add", mine[2], inner.op("Mul", r, theirs[2])))
    return [inner.op("Add", n, inner.op("Mul", z, inner.op("Sub", before[0], n)))]


def _lstm(inner: Graph, own: str, carried: str, before: list[str]) -> list[str]:
    """c' = f c + i g and h' = o tanh(c')."""
    i, f, g, o = inner.op("Split", inner.op("Add", own, carried), outputs=4, axis=1, num_outputs=4)
    i, f, g, o = inner.op("Sigmoid", i), inner.op("Sigmoid", f), inner.op("Tanh", g), inner.op("Sigmoid", o)
    memory = inner.op("Add", inner.op("Mul", f, before[1]), inner.op("Mul", i, g))
    return [inner.op("Mul", o, inner.op("Tanh", memory)), memory]
