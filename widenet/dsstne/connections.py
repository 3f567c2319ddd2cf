"""What lies between the layers of a network, as DSSTNE's files hold it: a piece of a weight at a time,
whoever holds it.
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

_NUMBERS_A_BLOCK = 2**22
_SIDES = ("width", "height", "length", "depth", "breadth")
Numbers = NDArray[np.float32]
Piece: TypeAlias = tuple[int, int, Numbers]
"""Some rows and columns of a matrix, float32, and the first of each."""


@dataclass(frozen=True)
class Matrix:
    """Numbers of the file, row after row. pieces: all of them, to be asked for by every process."""

    num_rows: int
    num_columns: int
    pieces: Callable[[], Iterator[Piece]]

    @classmethod
    def whole(cls, numbers: Numbers) -> "Matrix":
        """Of what every process has; a vector is a row."""
        matrix = np.atleast_2d(numbers)
        return cls(len(matrix), matrix.shape[1], lambda: iter([(0, 0, matrix)]))


@dataclass(frozen=True)
class Connection:
    """What lies between a source and a layer.

    weights: None if they are those of `owner`. sides: width, height, length, depth and breadth of the
    weights, shared ones too. norm: the largest length of a unit's weights; 0 for none.
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
        """Its variables, each with the name of its dimension."""
        return {"bias": ("biasDim", self.bias)} | (
            {} if self.weights is None else {"weights": ("weightDim", self.weights)}
        )

    @property
    def attributes(self) -> dict[str, Any]:
        """What the file says of it."""
        found = {
            "inputLayer": self.source,
            "outputLayer": self.layer,
            "bLocked": np.uint32(0),
            "norm": np.float32(self.norm),
        }
        found |= {side: np.uint64(length) for side, length in zip(_SIDES, self.sides, strict=True)}
        found["bShared"] = np.uint32(self.weights is None)
        if self.weights is None:
            assert self.owner is not None
            shared = {"sourceInputLayer": self.owner[0], "sourceOutputLayer": self.owner[1]}
            return found | shared | {"bTransposed": np.uint32(self.transposed)}
        return found


@dataclass(frozen=True)
class Block:
    """A piece of a matrix that is a variable of the file."""

    variable: str
    num_columns: int
    piece: Piece

    def write(self, file: Any) -> None:
        """Put it where it belongs."""
        target, (first, column, numbers) = file.variables[self.variable], self.piece
        whole_rows = numbers.shape[1] == self.num_columns
        for row, flat in enumerate([numbers.reshape(-1)] if whole_rows else numbers, start=first):
            start = row * self.num_columns + column
            target[start : start + len(flat)] = flat


def blocks_of(connections: Sequence[Connection]) -> Iterator[Block]:
    """All numbers of the connections; every process must take all."""
    for number, connection in enumerate(connections):
        for name, (_, matrix) in connection.matrices.items():
            for piece in matrix.pieces():
                yield Block(f"weight{number}_{name}", matrix.num_columns, piece)


def connections_of(
    network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, names: Mapping[str, str]
) -> Iterator[Connection]:
    """A layer's connections; its bias stands beside the first. names: what layers are called there, where
    otherwise than here.
    """
    sources, start, name = network.spec.sources(layer), 0, names.get(layer.name, layer.name)
    norm = layer.weight_norm or 0.0
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
    """The sizes of a connection's weights as DSSTNE lists them, five numbers: out, in, and a kernel's
    axes, slowest first.
    """
    windows = network.layout.windows.get((layer.name, source))
    sides: tuple[int, ...] = (network.layout.units[layer.name], network.layout.units[source])
    if windows is not None:
        sides = (network.layout.shapes[layer.name][0], windows.channels, *windows.kernel)
    return *sides, *(1,) * (len(_SIDES) - len(sides))


def _owner(network: Network, link: Link) -> tuple[str, str] | None:
    """The source and the layer between which a weight lies; None for one that lies between several sources
    and an output.
    """
    if link.weight in network.outputs:
        sources = network.spec.sources(network.outputs[link.weight].spec)
        return (sources[0], link.weight) if len(sources) == 1 else None
    layer, _, source = link.weight.partition("/")
    return source, layer


def _weights(
    network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, link: Link, start: int, stop: int
) -> Matrix:
    """The weights [units of the source, units of the layer], of a convolution [filters, channels and places
    of the kernel].

    start, stop: where an output of several sources has those of one.
    """
    if isinstance(layer, OutputLayer):
        width = network.wide[link.weight].shards.width
        return Matrix(
            stop - start,
            width,
            lambda: ((0, unit, rows.T) for unit, rows in _rows(network, link.weight, start, stop)),
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
    """The bias of a layer, of a convolution one number a filter; zeros where it has none, or stands
    elsewhere.
    """
    name, width = f"{layer.name} bias", network.layout.shapes[layer.name][0]
    if is_zero or not layer.bias:
        return Matrix.whole(np.zeros(width, np.float32))
    if isinstance(layer, OutputLayer):
        return Matrix(1, width, lambda: ((0, unit, rows.T) for unit, rows in _rows(network, name, 0, 1)))
    return Matrix.whole(network.trunk[name].tensor.detach().cpu().numpy())


def _rows(network: Network, name: str, start: int, stop: int) -> Iterator[tuple[int, Numbers]]:
    """The columns [start, stop) of a wide weight, some rows at a time, each with the number of the first;
    a bias has one column.
    """
    wide, together = network.wide[name], max(1, _NUMBERS_A_BLOCK // (stop - start))
    for shard in range(wide.shards.count):
        size = wide.shards.size(shard)
        for first in range(0, size, together):
            last, part = min(first + together, size), wide.parts.get(shard)
            own = None if part is None else part.weight[first:last].reshape(last - first, -1)[:, start:stop]
            found = network.exchange.fetch(
                shard, own, (last - first, stop - start), network.device, f'weight "{name}"'
            )
            yield wide.shards.start(shard) + first, found.detach().cpu().numpy()
