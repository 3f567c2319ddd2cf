"""Convolutions and poolings as ONNX nodes.

Their inputs and outputs are flat units, [E, channels * positions], as in the network.
"""

from functools import reduce
from typing import Any

from widenet.frameworks.onnx_graph import Graph
from widenet.plan.windows import Shape, Windows
from widenet.spec.pooling import LocalResponseNormalization
from widenet.spec.spatial import PoolingLayer

_LENGTH_FLOOR = 1e-8
"""The number that the network adds to a length for "cosine"."""


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
            if n % 2 == 0:
                return _even_response(graph, first, shape, layer.function)
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


def _even_response(graph: Graph, value: str, shape: Shape, function: LocalResponseNormalization) -> str:
    """Return a local response normalization over an even number of channels.

    ONNX's LRN need not support even sizes. The longer half comes after each channel.
    """
    n = function.n
    placed = graph.op("Reshape", value, graph.whole(-1, 1, shape[0], _positions(shape)))
    pads = [(n - 1) // 2, 0, n // 2, 0]
    mean = graph.op(
        "AveragePool",
        graph.op("Mul", placed, placed),
        kernel_shape=[n, 1],
        strides=[1, 1],
        pads=pads,
        count_include_pad=1,
    )
    total = graph.op("Add", graph.op("Mul", mean, graph.constant(function.alpha)), graph.constant(function.k))
    return _flat(graph, graph.op("Div", placed, graph.op("Pow", total, graph.constant(function.beta))))


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
