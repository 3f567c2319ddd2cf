"""Export of runs to DSSTNE's trained networks.

Weights come in pieces, whichever process holds them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.layer_attributes import (
    LOSSES,
    attributes_of,
    is_placed,
    merged_attributes,
    merged_sources,
    padding_problems,
    problems_of,
)
from widenet.dsstne.model_file import ERRORS, NORMALIZATION
from widenet.dsstne.netcdf import as_characters, writing
from widenet.dsstne.spec.network import MARGINS
from widenet.errors import FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.plan.layout import Link
from widenet.runs import Model
from widenet.spec.activations import LocalResponseNormalization
from widenet.spec.layers import (
    ConvolutionLayer,
    DeltaBoost,
    HiddenLayer,
    InputLayer,
    OutputLayer,
    PoolingLayer,
)
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import InverseSchedule
from widenet.spec.training import TrainingSpec

_SIDES = ("width", "height", "length", "depth", "breadth")
Numbers = NDArray[np.float32]
Piece: TypeAlias = tuple[int, int, Numbers]
"""First row, first column and the float32 numbers of a piece of a matrix."""


_CHECKPOINT_NAME = "checkpoint"
"""DSSTNE's default name for checkpoints; it writes none because the interval is 0."""


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
        return Matrix(stop - start, width, lambda: _columns(network, link.weight, start, stop))
    weight = network.layout.weights[link.weight]
    if weight.split:
        num_inputs = weight.row_length
        return Matrix(num_inputs, weight.rows, lambda: _columns(network, link.weight, 0, num_inputs))
    if link.weight in network.wide:
        wide, columns = network.wide[link.weight], network.layout.units[layer.name]
        return Matrix(wide.shards.width, columns, lambda: _rows(network, link.weight, columns))
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
        return Matrix(1, width, lambda: _columns(network, name, 0, 1))
    return Matrix.whole(network.trunk[name].tensor.detach().cpu().numpy())


def _rows(network: Network, name: str, num_columns: int) -> Iterator[Piece]:
    """Yield the rows of a wide weight."""
    for unit, rows in network.rows(name, slice(0, num_columns)):
        yield unit, 0, rows.cpu().numpy()


def _columns(network: Network, name: str, start: int, stop: int) -> Iterator[Piece]:
    """Yield columns [start, stop) of a wide weight as rows; a bias has one column."""
    for unit, rows in network.rows(name, slice(start, stop)):
        yield 0, unit, rows.T.cpu().numpy()


def export_model(run: Model | Path | str, out: Path | str) -> None:
    """Write a run as a trained network for DSSTNE.

    The file has the run's layers, activations, weights and biases, and its training settings if DSSTNE has
    them.

    Args:
        run: The run.
        out: The NetCDF file to write; an earlier file is replaced.

    Raises:
        FitError: DSSTNE would compute the network differently; the message lists every difference.
    """
    model = run if isinstance(run, Model) else Model.load(run, "cpu")
    kinds = {name: record.kind for name, record in model.run.fields.items()}
    write_network(model.network, model.run.training, kinds, Path(out), str(model.run.path))


def write_network(
    network: Network, training: TrainingSpec, kinds: Mapping[str, str], out: Path, where: str
) -> None:
    """Write a network as `export_model` does, about 2^22 numbers of a weight at a time.

    Every process that holds shards must call it; the leader writes.

    Args:
        network: The network.
        training: Its training document.
        kinds: Kinds of its fields, "sparse" or "dense".
        out: The NetCDF file to write; an earlier file is replaced.
        where: Beginning of error messages.

    Raises:
        FitError: DSSTNE would compute the network differently.
        DataError: The leader cannot write the file; raised in every process.
    """
    spec = network.spec
    merged = merged_sources(spec)
    problems = _problems(network)
    if problems:
        raise FitError(
            f"must have only parts that DSSTNE computes in the same way; it has {'; '.join(problems)}",
            place=where,
        )
    weighted = [
        layer for layer in spec.layers if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer)
    ]
    names = {layer.name: output for output, layer in merged.items()}
    connections = [
        connection
        for layer in weighted
        if layer.name not in merged
        for connection in connections_of(network, layer, names)
    ]
    blocks = blocks_of(connections)

    def write() -> None:
        try:
            if network.exchange.leads:
                _write(network, training, kinds, out, connections, blocks)
        finally:
            for _ in blocks:  # other processes send these blocks, or wait for them
                pass

    by_all(network.exchange, write, "network")


def _problems(network: Network) -> list[str]:
    """Return everything in a network that DSSTNE would compute differently, or not at all."""
    spec, merged = network.spec, merged_sources(network.spec)
    problems = [problem for layer in spec.layers for problem in problems_of(spec, layer)]
    problems += [
        problem
        for (name, _), windows in network.layout.windows.items()
        for problem in padding_problems(spec.layer(name), windows)
    ]
    placed = [source for layer in spec.layers if is_placed(layer) for source in spec.sources(layer)]
    flat = dict.fromkeys(source for source in placed if isinstance(spec.layer(source), HiddenLayer))
    problems += [f'windows over the units of layer "{source}", which is fully connected' for source in flat]
    problems += [
        f'"weightless" of layer "{output.name}"'
        for output in spec.outputs
        if output.weightless and output.name not in merged
    ]
    problems += [
        f'"{output.term}" of layer "{output.name}"' for output in spec.outputs if output.term is not None
    ]
    functions = [each.function for each in spec.layers if isinstance(each, PoolingLayer)]
    lrns = [each for each in functions if isinstance(each, LocalResponseNormalization)]
    if any(each != lrns[0] for each in lrns):
        problems.append("local response normalizations with different settings, which a network has once")
    losses = {output.loss.kind for output in spec.outputs}
    if len(losses) > 1:
        problems.append(f"losses of several kinds ({', '.join(sorted(losses))})")
    return problems


def _write(
    network: Network,
    training: TrainingSpec,
    kinds: Mapping[str, str],
    out: Path,
    connections: Sequence[Connection],
    blocks: Iterator[Block],
) -> None:
    """Write attributes and empty variables, then each block of numbers as it arrives."""
    spec, merged = network.spec, merged_sources(network.spec)
    layers = [layer for layer in spec.layers if layer not in merged.values()]
    placed = {source for each in spec.layers if is_placed(each) for source in spec.sources(each)}
    windows_by_layer = {name: windows for (name, _), windows in network.layout.windows.items()}
    with writing(out) as file:
        _write_network(file, spec, training, len(layers), len(connections))
        for number, layer in enumerate(layers):
            if isinstance(layer, OutputLayer) and layer.name in merged:
                source = merged[layer.name]
                shape, windows = network.layout.shapes[source.name], windows_by_layer.get(source.name)
                _set(file, f"layer{number}_", merged_attributes(spec, layer, source, shape, windows))
                continue
            shape, windows = network.layout.shapes[layer.name], windows_by_layer.get(layer.name)
            is_sparse = isinstance(layer, InputLayer) and kinds[layer.field] == "sparse"
            has_places = layer.name in placed
            attributes = attributes_of(
                spec, layer, shape, windows=windows, is_sparse=is_sparse, has_places=has_places
            )
            _set(file, f"layer{number}_", attributes)
            if getattr(layer, "batch_normalization", None) is not None:
                _write_normalization(file, f"layer{number}_", network, layer.name)
        for number, connection in enumerate(connections):
            _set(file, f"weight{number}_", connection.attributes)
            for name, (dimension, matrix) in connection.matrices.items():
                file.createDimension(f"weight{number}_{dimension}", matrix.num_rows * matrix.num_columns)
                file.createVariable(f"weight{number}_{name}", "f4", (f"weight{number}_{dimension}",))
        for block in blocks:
            block.write(file)


def _write_network(
    file: Any, spec: NetworkSpec, training: TrainingSpec, num_layers: int, num_connections: int
) -> None:
    """Write the attributes of the whole network."""
    denoising = max(layer.denoise for layer in spec.inputs)
    loss, boost = spec.outputs[0].loss, spec.outputs[0].delta_boost or DeltaBoost()
    penalties = (getattr(layer, "sparseness", None) for layer in spec.hidden)
    sparse = next((each for each in penalties if each is not None), None)
    pooling = (layer.function for layer in spec.hidden if isinstance(layer, PoolingLayer))
    lrn = next(
        (function for function in pooling if isinstance(function, LocalResponseNormalization)),
        LocalResponseNormalization(kind="lrn"),
    )
    floats = {
        "version": 0.9,
        "LRN_k": lrn.k,
        "LRN_alpha": lrn.alpha,
        "LRN_beta": lrn.beta,
        "denoising_p": denoising,
        "sparsenessPenalty_p": sparse.target if sparse else 0.0,
        "sparsenessPenalty_beta": sparse.weight if sparse else 0.0,
        "deltaBoost_one": boost.target,
        "deltaBoost_zero": boost.other,
        **{f"SMCE_{key}": getattr(loss, name, default) for key, (name, default, _) in MARGINS.items()},
        "decay": training.schedule.decay if isinstance(training.schedule, InverseSchedule) else 0.0,
    }
    flags = {
        "kind": 0,
        "errorFunction": ERRORS.index(LOSSES[loss.kind]),
        "bSparsenessPenalty": sparse is not None,
        "bDenoising": denoising > 0,
        "ShuffleIndices": training.shuffle,
        "layers": num_layers,
        "weights": num_connections,
    }
    whole = {"maxout_k": 2, "LRN_n": lrn.n, "checkpoint_interval": 0, "checkpoint_epochs": 0}
    _set(file, "", {"name": spec.name, "checkpoint_name": _CHECKPOINT_NAME})
    _set(file, "", {name: np.float32(value) for name, value in floats.items()})
    _set(file, "", {name: np.uint32(value) for name, value in flags.items()})
    _set(file, "", {name: np.int32(value) for name, value in whole.items()})


def _write_normalization(file: Any, prefix: str, network: Network, name: str) -> None:
    for part, variable in NORMALIZATION.items():
        numbers = network.trunk[f"{name} normalization {part}"].tensor.detach().cpu().numpy()
        if f"{prefix}bnDim" not in file.dimensions:
            file.createDimension(f"{prefix}bnDim", len(numbers))
        file.createVariable(f"{prefix}{variable}", "f4", (f"{prefix}bnDim",))[:] = numbers


def _set(file: Any, prefix: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        file.setncattr(f"{prefix}{name}", as_characters(value) if isinstance(value, str) else value)
