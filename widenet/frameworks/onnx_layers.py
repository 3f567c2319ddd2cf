"""The layers of a network as ONNX nodes, equivalent to `Network.forward` and `top_k`.

Inputs and outputs of convolutions and poolings are flat units, [E, channels * positions], as in the network.
Sequences are padded to one length and ordered by position. Letters in comments: E sequences, T positions of
the longest, H heads of C numbers, U = H * C units.
"""

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from widenet.errors import FitError
from widenet.frameworks.onnx_graph import END, Graph, weight_name
from widenet.model.activations import rises
from widenet.model.layers.attention import EPSILON
from widenet.model.operands import SHORTEST
from widenet.plan.layout import Layout, Shape, Windows
from widenet.plan.weights import FOLLOWING, TRAINED
from widenet.spec.activations import LocalResponseNormalization
from widenet.spec.layers import (
    AttentionLayer,
    ConvolutionLayer,
    HiddenLayer,
    InputLayer,
    Neighbourhood,
    OutputLayer,
    PoolingLayer,
    RecurrentLayer,
)


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

    ONNX's cells multiply their inputs by a matrix: it hands on the sums, in ONNX's order of the gates.

    Args:
        graph: The graph.
        layer: The layer.
        own: Contribution of the sources to the gates, [T * E, G].
        weight: Weights of the previous state, [G, H].
        bias: Biases [4 H], or None.
        positions: Positions of the sequences.
    """
    units, sums = layer.units, layer.sums
    gates = (1, 0, 2) if layer.cell == "gru" else (0, 3, 1, 2)
    order = graph.whole(*(gate * units + unit for gate in gates for unit in range(units)))
    biases: list[str] = []
    if bias is not None:
        own = graph.op("Add", own, graph.slice(bias, graph.whole(0), graph.whole(sums)))
    if bias is not None and layer.cell == "gru":
        of_state = graph.slice(bias, graph.whole(sums), graph.whole(4 * units))
        of_others = graph.constant(np.zeros(5 * units))
        biases = [graph.op("Unsqueeze", graph.op("Concat", of_others, of_state, axis=0), graph.whole(0))]
    by_time = graph.op("Concat", graph.whole(-1), positions.num_examples, graph.whole(sums), axis=0)
    zeros = graph.op("ConstantOfShape", graph.whole(sums, sums))
    matrices = (
        graph.op("Unsqueeze", graph.op("Gather", matrix, order), graph.whole(0))
        for matrix in (graph.op("EyeLike", zeros), weight)
    )
    settings = {"linear_before_reset": 1} if layer.cell == "gru" else {}
    numbers = graph.op("Reshape", own, by_time)
    outputs = graph.op(layer.cell.upper(), numbers, *matrices, *biases, hidden_size=units, **settings)
    return str(graph.op("Reshape", outputs, graph.whole(-1, units)))


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
        values = _with_positions(graph, layer, units, values, positions)
    values = graph.op("Add", values, _attended(graph, layer, units, values, positions))
    values = graph.op("Add", values, _fed_forward(graph, layer, values))
    return _normalized(graph, layer, "output", values) if layer.normalize_output else values


def _with_positions(graph: Graph, layer: AttentionLayer, units: int, values: str, positions: Padded) -> str:
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


_NORMALIZATION = (*TRAINED, *FOLLOWING)

EXAMPLES = "examples"
"""Name of the batch dimension."""

_LENGTH_FLOOR = 1e-8
"""The number that the network adds to a length for "cosine"."""


@dataclass(frozen=True)
class SparseField:
    """The inputs of a sparse field.

    Attributes:
        offsets: int64 [E + 1].
        indices: int64 [Z].
        values: float32 [Z]; None for ones.
    """

    offsets: str
    indices: str
    values: str | None

    @classmethod
    def declared(cls, graph: Graph, name: str, has_values: bool) -> "SparseField":
        """Add the inputs NAME.offsets, NAME.indices and, with values, NAME.values."""
        entries = f"{name} entries"
        values = graph.input(f"{name}.values", [entries]) if has_values else None
        indices = graph.input(f"{name}.indices", [entries], is_whole=True)
        return cls(graph.input(f"{name}.offsets", [f"{EXAMPLES} + 1"], is_whole=True), indices, values)


@dataclass(frozen=True)
class SparseValue:
    """The value of a sparse input; `factor` [E, 1] multiplies an example's sums, None means 1."""

    field: SparseField
    values: str | None
    factor: str | None


@dataclass(frozen=True)
class SequenceValue:
    """The value of a sequence input, with one feature per position.

    Attributes:
        features: int64 [T * E].
        values: float32 [T * E]; None for ones.
    """

    features: str
    values: str | None


@dataclass
class Layers:
    """Adds the layers of a network to a graph.

    Weights are initializers of the graph, by their names.

    Attributes:
        graph: The graph.
        layout: The network.
        fields: Inputs of sparse fields, and names of dense ones.
        damped: Input layers whose features are multiplied by the weight "LAYER damping".
        values: Values of the layers added so far.
        positions: Positions of the sequence inputs added so far.
    """

    graph: Graph
    layout: Layout
    fields: dict[str, SparseField | str]
    damped: frozenset[str]
    values: dict[str, SparseValue | SequenceValue | str] = field(default_factory=dict)
    positions: dict[str, Padded] = field(default_factory=dict)

    def add_all(self) -> None:
        """Add all input and hidden layers."""
        for layer in self.layout.network.inputs:
            source = self.fields[layer.field]
            if isinstance(source, str):
                self.values[layer.name] = self._dense(layer, source)
            else:
                self.values[layer.name] = (
                    self._sequence(layer, source)
                    if layer.name in self.layout.along
                    else self._sparse(layer, source)
                )
        for hidden in self.layout.network.hidden:
            if isinstance(hidden, PoolingLayer):
                self.values[hidden.name] = self._pooled(hidden)
            elif isinstance(hidden, RecurrentLayer):
                self.values[hidden.name] = self._recurrent(hidden)
            elif isinstance(hidden, AttentionLayer):
                self.values[hidden.name] = self._attention(hidden)
            else:
                self.values[hidden.name] = self._hidden(hidden)

    def _sparse(self, layer: InputLayer, source: SparseField) -> SparseValue:
        graph, values = self.graph, None if layer.values == "ignore" else source.values
        if layer.name in self.damped:
            factors = graph.op("Gather", weight_name(f"{layer.name} damping"), source.indices)
            values = factors if values is None else graph.op("Mul", values, factors)
        if layer.scale == "none":
            return SparseValue(source, values, None)
        count = graph.op(
            "Cast", graph.op("Sub", graph.ends(source.offsets), graph.starts(source.offsets)), to=1
        )
        if layer.scale == "unit" and values is not None:
            squares = graph.op("Mul", values, values)
            total = graph.per_example(
                source.offsets,
                lambda inner, own: inner.op("ReduceSum", own(squares), inner.whole(0), keepdims=0),
            )
            length = graph.op("Sqrt", graph.op("Max", total, graph.constant(1e-30)))
        else:
            length = graph.op("Max", count, graph.constant(1))
            length = length if layer.scale == "mean" else graph.op("Sqrt", length)
        return SparseValue(source, values, graph.column(graph.op("Reciprocal", length)))

    def _sequence(self, layer: InputLayer, source: SparseField) -> SequenceValue:
        """Add a sequence input, in which every position is an example with one feature."""
        graph = self.graph
        positions = self.positions[layer.name] = padded(graph, source.offsets, source.indices, layer.newest)
        features = at_positions(graph, positions.entries, source.indices, graph.whole(0))
        if layer.name not in self.damped:
            return SequenceValue(features, None)
        factors = graph.op("Gather", weight_name(f"{layer.name} damping"), features)
        return SequenceValue(features, graph.op("Sign", factors) if layer.scale == "unit" else factors)

    def _recurrent(self, layer: RecurrentLayer) -> str:
        sums = [self._product(layer.name, source) for source in self.layout.network.sources(layer)]
        weight = weight_name(self.layout.links[layer.name, layer.name].weight)
        bias = weight_name(f"{layer.name} bias") if layer.bias else None
        outputs = states(
            self.graph,
            layer,
            self._added(sums[0], sums[1:]),
            weight,
            bias,
            self.positions[self.layout.along[layer.name]],
        )
        return self._added(outputs, [str(self.values[name]) for name in layer.skip or ()])

    def _attention(self, layer: AttentionLayer) -> str:
        (source,) = self.layout.network.sources(layer)
        units, positions = self.layout.units[layer.name], self.positions[self.layout.along[layer.name]]
        outputs = block(self.graph, layer, units, str(self.values[source]), positions)
        return self._added(outputs, [str(self.values[name]) for name in layer.skip or ()])

    def _dense(self, layer: InputLayer, source: str) -> str:
        graph, width = self.graph, self.layout.units[layer.name]
        if layer.scale == "none":
            return source
        if layer.scale == "unit":
            length = graph.op("Max", graph.op("ReduceL2", source, graph.whole(1)), graph.constant(1e-12))
            return str(graph.op("Div", source, length))
        return str(graph.op("Div", source, graph.constant(width if layer.scale == "mean" else width**0.5)))

    def _hidden(self, layer: HiddenLayer | ConvolutionLayer) -> str:
        graph, shape = self.graph, self.layout.shapes[layer.name]
        products = [self._product(layer.name, source) for source in self.layout.network.sources(layer)]
        first, *others = [*products, *(str(self.values[name]) for name in layer.skip or ())]
        total = self._added(first, others)
        changes = [("Add", weight_name(f"{layer.name} bias"))] if layer.bias else []
        if layer.batch_normalization is not None:
            scale, shift, mean, variance = (
                weight_name(f"{layer.name} normalization {part}") for part in _NORMALIZATION
            )
            deviation = graph.op(
                "Sqrt", graph.op("Add", variance, graph.constant(layer.batch_normalization.epsilon))
            )
            factor = graph.op("Div", scale, deviation)
            changes += [("Mul", factor), ("Add", graph.op("Sub", shift, graph.op("Mul", mean, factor)))]
        return graph.activate(
            layer.activation, per_channel(graph, total, shape, *changes) if changes else total
        )

    def _pooled(self, layer: PoolingLayer) -> str:
        names = self.layout.network.sources(layer)
        sources = [str(self.values[name]) for name in names]
        units = pooling(
            self.graph,
            layer,
            sources,
            self.layout.shapes[names[0]],
            self.layout.windows.get((layer.name, names[0])),
        )
        return self._added(units, [str(self.values[name]) for name in layer.skip or ()])

    def _added(self, total: str, others: list[str]) -> str:
        for other in others:
            total = self.graph.op("Add", total, other)
        return total

    def _product(self, layer: str, source: str) -> str:
        value, link = self.values[source], self.layout.links[layer, source]
        if isinstance(value, str) and (layer, source) in self.layout.windows:
            return convolution(
                self.graph, value, weight_name(link.weight), self.layout.windows[layer, source]
            )
        if isinstance(value, str):
            return str(
                self.graph.op("Gemm", value, weight_name(link.weight), transB=0 if link.transposed else 1)
            )
        if isinstance(value, SequenceValue):
            rows = self.graph.op("Gather", weight_name(link.weight), value.features)
            return str(
                rows if value.values is None else self.graph.op("Mul", rows, self.graph.column(value.values))
            )
        return self._gathered(value, link.weight)

    def _gathered(self, value: SparseValue, weight: str, axis: int = 0) -> str:
        """Return the sums of each example's weight rows (columns with axis 1) times their values, [E, H]."""
        total = self.graph.per_example(
            value.field.offsets, lambda inner, own: self._sum(inner, own, value, weight, axis)
        )
        return total if value.factor is None else str(self.graph.op("Mul", total, value.factor))

    def _sum(self, inner: Graph, own: Any, value: SparseValue, weight: str, axis: int) -> str:
        """Return the sum of one example's weight rows (columns with axis 1) times their values, [H]."""
        rows = inner.op("Gather", weight_name(weight), own(value.field.indices), axis=axis)
        if value.values is not None:
            rows = inner.op("Mul", rows, own(value.values) if axis else inner.column(own(value.values)))
        return str(inner.op("ReduceSum", rows, inner.whole(axis), keepdims=0))

    def logits(self, output: OutputLayer) -> str:
        """Return the logits of an output, [E, L]."""
        graph, name = self.graph, self.layout.links[output.name, ""].weight
        weight = weight_name(name)
        bias = weight_name(f"{output.name} bias")
        features = self.values[self.layout.network.sources(output)[0]]
        if isinstance(features, SparseValue):
            gathered = self._gathered(features, name, axis=1)
            return str(graph.op("Add", gathered, bias)) if output.bias else gathered
        sources = [str(self.values[source]) for source in self.layout.network.sources(output)]
        incoming = sources[0] if len(sources) == 1 else graph.op("Concat", *sources, axis=1)
        if output.name in self.layout.along:
            width = sum(self.layout.units[source] for source in self.layout.network.sources(output))
            incoming = newest(graph, incoming, self.positions[self.layout.along[output.name]], width)
        if output.weightless:
            return str(graph.op("Identity", incoming))
        if output.cosine is None:
            return str(graph.op("Gemm", incoming, weight, *[bias][: output.bias], transB=1))
        length = graph.op("ReduceL2", incoming, graph.whole(1))
        is_short = graph.op("LessOrEqual", length, graph.constant(SHORTEST))
        factor = graph.op(
            "Div",
            graph.constant(1 / output.cosine.finished),
            graph.op("Where", is_short, graph.constant(np.inf), length),
        )
        incoming, lengths = graph.op("Mul", incoming, factor), weight_name(f"{output.name} lengths")
        cosines = graph.op("Mul", graph.op("Gemm", incoming, weight, transB=1), lengths)
        return str(graph.op("Add", cosines, bias) if output.bias else cosines)

    def best(
        self, output: OutputLayer, logits: str, k: int, num_units: int, exclude_seen: bool
    ) -> tuple[str, str]:
        """Return scores [E, K] and units int64 [E, K] of the k best among the first `num_units` units.

        Missing entries are -inf and -1.
        """
        graph = self.graph
        by_logit = rises(output.activation)
        ranked = graph.slice(
            logits if by_logit else graph.activate(output.activation, logits),
            graph.whole(0),
            graph.whole(num_units),
            1,
        )
        seen = self.fields.get(output.field)
        if exclude_seen and isinstance(seen, SparseField):
            ranked = self._without(ranked, seen, num_units)
        best, units = graph.op("TopK", ranked, graph.whole(k), outputs=2)
        lowest = graph.constant(-np.inf)
        is_valid = graph.op("Greater", best, lowest)
        scores = self._scores(output, best, logits) if by_logit else best
        units = graph.op("Where", is_valid, units, graph.constant(-1, np.int64))
        return graph.op("Where", is_valid, scores, lowest), units

    def _without(self, ranked: str, seen: SparseField, num_units: int) -> str:
        """Return the ranking with -inf for each example's own features."""
        graph = self.graph
        first = graph.op(
            "Mul", graph.example_of_entry(seen.offsets, seen.indices), graph.constant(num_units, np.int64)
        )
        places = graph.op("Add", first, seen.indices)
        hidden = graph.op("Expand", graph.constant(-np.inf), graph.op("Shape", places))
        flat = graph.op(
            "ScatterElements", graph.op("Reshape", ranked, graph.whole(-1)), places, hidden, axis=0
        )
        return str(graph.op("Reshape", flat, graph.op("Shape", ranked)))

    def _scores(self, output: OutputLayer, chosen: str, logits: str) -> str:
        """Return the activations of chosen logits [E, K]; a softmax needs the sum over all logits."""
        graph = self.graph
        if output.activation.kind != "softmax":
            return graph.activate(output.activation, chosen)
        peak = graph.op("ReduceMax", logits, graph.whole(1))
        total = graph.op("ReduceSum", graph.op("Exp", graph.op("Sub", logits, peak)), graph.whole(1))
        return str(graph.op("Div", graph.op("Exp", graph.op("Sub", chosen, peak)), total))


def convolution(graph: Graph, value: str, weight: str, windows: Windows) -> str:
    """Return the flat product of a convolution, with weight [filters, channels * kernel]."""
    filters = graph.op("Reshape", weight, graph.whole(-1, windows.channels, *windows.kernel))
    return _flat(
        graph,
        graph.op(
            "Conv", _placed(graph, value, (windows.channels, *windows.places)), filters, **_moves(windows)
        ),
    )


def pooling(
    graph: Graph, layer: PoolingLayer, sources: list[str], shape: Shape, windows: Windows | None
) -> str:
    """Return the flat units of a pooling layer; `shape` is that of its first source."""
    first = sources[0]
    match layer.function:
        case LocalResponseNormalization(k=k, n=n, alpha=alpha, beta=beta):
            rule = 'must have an odd "n"; other LRN cannot be written to ONNX'
            FitError.require(n % 2, rule, place=f'layer "{layer.name}"', value=n)
            placed = graph.op("Reshape", first, graph.whole(-1, shape[0], 1, _positions(shape)))
            return _flat(graph, graph.op("LRN", placed, alpha=alpha, beta=beta, bias=k, size=n))
        case plain if windows is not None:
            kind = "MaxPool" if plain.kind == "max" else "AveragePool"
            placed = _placed(graph, first, (windows.channels, *windows.places))
            return _flat(graph, graph.op(kind, placed, kernel_shape=windows.kernel, **_moves(windows)))
        case plain if plain.kind == "maxout":
            return str(graph.op("Max", *sources))
        case plain:
            return _compared(graph, sources, plain.kind == "cosine")


def _compared(graph: Graph, sources: list[str], by_cosine: bool) -> str:
    """Return the dot products or cosines of the first source with each other one, [E, others]."""
    axis = graph.whole(1)
    products = [graph.op("ReduceSum", graph.op("Mul", sources[0], other), axis) for other in sources[1:]]
    if by_cosine:
        lengths = [
            graph.op("Add", graph.op("ReduceL2", source, axis), graph.constant(_LENGTH_FLOOR))
            for source in sources
        ]
        both = [graph.op("Mul", lengths[0], length) for length in lengths[1:]]
        products = [graph.op("Div", product, length) for product, length in zip(products, both, strict=True)]
    return str(graph.op("Concat", *products, axis=1))


def per_channel(graph: Graph, value: str, shape: Shape, *numbers: tuple[str, str]) -> str:
    """Apply operations ("Add", "Mul") with one number per channel to flat units."""
    placed = (
        value if len(shape) == 1 else graph.op("Reshape", value, graph.whole(-1, shape[0], _positions(shape)))
    )
    for kind, number in numbers:
        placed = graph.op(kind, placed, number if len(shape) == 1 else graph.column(number))
    return placed if len(shape) == 1 else _flat(graph, placed)


def _positions(shape: Shape) -> int:
    return reduce(lambda product, size: product * size, shape[1:], 1)


def _placed(graph: Graph, value: str, shape: Shape) -> str:
    return str(graph.op("Reshape", value, graph.whole(-1, *shape)))


def _flat(graph: Graph, value: str) -> str:
    return str(graph.op("Flatten", value, axis=1))


def _moves(windows: Windows) -> dict[str, Any]:
    pads = [*(axis.before for axis in windows.axes), *(axis.after for axis in windows.axes)]
    return {"strides": [axis.stride for axis in windows.axes], "pads": pads}


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
