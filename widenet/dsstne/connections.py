"""The connections between a network's layers, as DSSTNE's files store them.

Weights come in pieces, whichever process holds them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from widenet.model.network import Network
from widenet.plan.layout import Link
from widenet.spec.layers import HiddenLayer, OutputLayer
from widenet.spec.spatial import ConvolutionLayer

_SIDES = ("width", "height", "length", "depth", "breadth")
Numbers = NDArray[np.float32]
Piece: TypeAlias = tuple[int, int, Numbers]
"""First row, first column and the float32 numbers of a piece of a matrix."""


@dataclass(frozen=True)
class Matrix:
    """A matrix of the file, stored row after row.

    Attributes:
        num_rows: Number of rows.
        num_columns: Number of columns.
        pieces: Iterates over the whole matrix. Every process must consume all pieces.
    """

    num_rows: int
    num_columns: int
    pieces: Callable[[], Iterator[Piece]]

    @classmethod
    def whole(cls, numbers: Numbers) -> "Matrix":
        """Return the matrix of numbers that every process has; a vector becomes one row."""
        matrix = np.atleast_2d(numbers)
        return cls(len(matrix), matrix.shape[1], lambda: iter([(0, 0, matrix)]))


@dataclass(frozen=True)
class Connection:
    """The weights and the bias between a source and a layer.

    Attributes:
        source: Name of the source.
        layer: Name of the layer.
        weights: The weights; None if the connection uses those of `owner`.
        bias: The bias.
        sides: Width, height, length, depth and breadth of the weights, also of shared ones.
        norm: Largest length of a unit's weights; 0 for no limit.
        owner: Source and layer of the connection whose weights this one uses.
        transposed: Whether the shared weights are transposed.
    """

    source: str
    layer: str
    weights: Matrix | None
    bias: Matrix
    sides: tuple[int, ...]
    norm: float = 0.0
    owner: tuple[str, str] | None = None
    transposed: bool = False

    @property
    def matrices(self) -> dict[str, tuple[str, Matrix]]:
        """The variables by name, each with the name of its dimension."""
        return {"bias": ("biasDim", self.bias)} | (
            {} if self.weights is None else {"weights": ("weightDim", self.weights)}
        )

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that the file has for the connection."""
        values = {
            "inputLayer": self.source,
            "outputLayer": self.layer,
            "bLocked": np.uint32(0),
            "norm": np.float32(self.norm),
        }
        values |= {side: np.uint64(length) for side, length in zip(_SIDES, self.sides, strict=True)}
        values["bShared"] = np.uint32(self.weights is None)
        if self.weights is None:
            assert self.owner is not None
            shared = {"sourceInputLayer": self.owner[0], "sourceOutputLayer": self.owner[1]}
            return values | shared | {"bTransposed": np.uint32(self.transposed)}
        return values


@dataclass(frozen=True)
class Block:
    """A piece of a matrix, and the variable of the file that it belongs to."""

    variable: str
    num_columns: int
    piece: Piece

    def write(self, file: Any) -> None:
        """Write the numbers to their position in the file."""
        target, (first, column, numbers) = file.variables[self.variable], self.piece
        whole_rows = numbers.shape[1] == self.num_columns
        for row, flat in enumerate([numbers.reshape(-1)] if whole_rows else numbers, start=first):
            start = row * self.num_columns + column
            target[start : start + len(flat)] = flat


def blocks_of(connections: Sequence[Connection]) -> Iterator[Block]:
    """Yield all numbers of the connections; every process must consume all blocks."""
    for number, connection in enumerate(connections):
        for name, (_, matrix) in connection.matrices.items():
            for piece in matrix.pieces():
                yield Block(f"weight{number}_{name}", matrix.num_columns, piece)


def connections_of(
    network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, names: Mapping[str, str]
) -> Iterator[Connection]:
    """Yield the connections of a layer; the first one carries its bias.

    Args:
        network: The network.
        layer: One of its layers.
        names: The layers' names in the file, where they differ from the network document's.
    """
    sources, start, name = network.spec.sources(layer), 0, names.get(layer.name, layer.name)
    norm = getattr(layer, "weight_norm", None) or 0.0
    for place, source in enumerate(sources):
        bias = _bias(network, layer, is_zero=place > 0)
        link = network.layout.links[layer.name, "" if isinstance(layer, OutputLayer) else source]
        owner, sides = _owner(network, link), _sides(network, layer, source)
        if owner not in (None, (source, layer.name)) and len(sources) * isinstance(layer, OutputLayer) <= 1:
            assert owner is not None
            yield Connection(
                source,
                name,
                None,
                bias,
                sides,
                norm,
                (owner[0], names.get(owner[1], owner[1])),
                link.transposed,
            )
            continue
        stop = start + network.layout.units[source]
        yield Connection(source, name, _weights(network, layer, link, start, stop), bias, sides, norm)
        start = stop


def _sides(
    network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, source: str
) -> tuple[int, ...]:
    """Return the five sizes of a connection's weights, in DSSTNE's order.

    The order is outputs, inputs, and the kernel's axes, slowest first. Unused sizes are 1.
    """
    windows = network.layout.windows.get((layer.name, source))
    sides: tuple[int, ...] = (network.layout.units[layer.name], network.layout.units[source])
    if windows is not None:
        sides = (network.layout.shapes[layer.name][0], windows.channels, *windows.kernel)
    return *sides, *(1,) * (len(_SIDES) - len(sides))


def _owner(network: Network, link: Link) -> tuple[str, str] | None:
    """Return the source and the layer that own a weight; None if an output has several sources."""
    if link.weight in network.outputs:
        sources = network.spec.sources(network.outputs[link.weight].spec)
        return (sources[0], link.weight) if len(sources) == 1 else None
    layer, _, source = link.weight.partition("/")
    return source, layer


def _weights(
    network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, link: Link, start: int, stop: int
) -> Matrix:
    """Return the weights of a connection in the layout of DSSTNE's files.

    The shape is [units of the source, units of the layer]; for a convolution it is [filters, channels times
    positions of the kernel]. `start` and `stop` select one source of an output that has several.
    """
    if isinstance(layer, OutputLayer):
        width = network.wide[link.weight].shards.width
        return Matrix(
            stop - start,
            width,
            lambda: ((0, unit, rows.T) for unit, rows in _rows(network, link.weight, start, stop)),
        )
    weight = network.layout.weights[link.weight]
    if weight.split:
        num_inputs = weight.row_length
        return Matrix(
            num_inputs,
            weight.rows,
            lambda: ((0, unit, rows.T) for unit, rows in _rows(network, link.weight, 0, num_inputs)),
        )
    if link.weight in network.wide:
        wide, columns = network.wide[link.weight], network.layout.units[layer.name]
        return Matrix(
            wide.shards.width,
            columns,
            lambda: ((unit, 0, rows) for unit, rows in _rows(network, link.weight, 0, columns)),
        )
    weights: Numbers = network.trunk[link.weight].tensor.detach().cpu().numpy()
    return Matrix.whole(weights if link.transposed or isinstance(layer, ConvolutionLayer) else weights.T)


def _bias(network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, is_zero: bool) -> Matrix:
    """Return the bias of a layer: one number per unit, or per filter of a convolution.

    Returns zeros if the layer has no bias, or if another connection carries it (`is_zero`).
    """
    name, width = f"{layer.name} bias", network.layout.shapes[layer.name][0]
    if is_zero or not layer.bias:
        return Matrix.whole(np.zeros(width, np.float32))
    if isinstance(layer, OutputLayer):
        return Matrix(1, width, lambda: ((0, unit, rows.T) for unit, rows in _rows(network, name, 0, 1)))
    return Matrix.whole(network.trunk[name].tensor.detach().cpu().numpy())


def _rows(network: Network, name: str, start: int, stop: int) -> Iterator[tuple[int, Numbers]]:
    """Yield columns [start, stop) of a wide weight as blocks of rows, each with its first row's number.

    A bias has one column.
    """
    for unit, rows in network.rows(name, slice(start, stop)):
        yield unit, rows.cpu().numpy()
