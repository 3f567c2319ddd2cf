"""Export of runs to DSSTNE's trained networks.

Weights come in pieces, whichever process holds them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.model_file import (
    ACTIVATIONS,
    BATCH_NORMALIZATION,
    DENOISING,
    ERRORS,
    FUNCTIONS,
    LAYER_KINDS,
    NORMALIZATION,
    SIDES,
    SPARSE,
    TYPES,
)
from widenet.dsstne.netcdf import as_characters, writing
from widenet.dsstne.spec.layers import INITIALIZERS
from widenet.dsstne.spec.network import MARGINS
from widenet.errors import FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.plan.layout import Link, Shape, Windows
from widenet.runs import Model
from widenet.spec.activations import WINDOWED, LocalResponseNormalization
from widenet.spec.layers import (
    AttentionLayer,
    ConvolutionLayer,
    DeltaBoost,
    HiddenLayer,
    InputLayer,
    Layer,
    OutputLayer,
    PoolingLayer,
    RecurrentLayer,
)
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import InverseSchedule
from widenet.spec.training import TrainingSpec

LOSSES = {
    "l1": "L1",
    "l2": "L2",
    "cross_entropy": "CrossEntropy",
    "scaled_marginal_cross_entropy": "ScaledMarginalCrossEntropy",
    "data_scaled_marginal_cross_entropy": "DataScaledMarginalCrossEntropy",
    "hinge": "Hinge",
    "l2_hinge": "L2Hinge",
}
_ACTIVATIONS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "RectifiedLinear",
    "linear": "Linear",
    "softmax": "SoftMax",
    "elu": "ExponentialLinear",
    "selu": "ScaledExponentialLinear",
    "leaky_relu": "LeakyRectifiedLinear",
}
"""The activations that DSSTNE computes by their usual definition."""
_FUNCTIONS = {
    "max": "Max",
    "average": "Average",
    "lrn": "LRN",
    "maxout": "Maxout",
    "dot_product": "DotProduct",
    "cosine": "Cosine",
}
_SELU = {"ELUAlpha": 1.6732632423543772, "SELULambda": 1.0507009873554805}
_MAX_SOURCES = 4
_OUTPUT_ATTRIBUTES = ("name", "kind", "dataSet", "activation", "RELUSlope", "ELUAlpha", "SELULambda")
"""Attributes that an output keeps when it is merged with the layer that computes its units."""
_EPSILON = 1e-5
"""The number that cuDNN adds to a variance."""
_DEFAULT_FLOATS = {
    "pDropout": 0.0,
    "biasInit": 0.0,
    "weightNorm": 0.0,
    "deltaNorm": 0.0,
    "sparsenessPenalty_p": 0.0,
    "sparsenessPenalty_beta": 0.0,
    "weightInitScale": 1.0,
    "RELUSlope": 1.0,
    "ELUAlpha": 1.0,
    "SELULambda": 1.050701,
}
_KNOWN = {
    *(
        "kind",
        "name",
        "field",
        "units",
        "shape",
        "source",
        "skip",
        "dropout",
        "dropout_form",
        "values",
        "others",
    ),
    *("denoise", "denoise_rescale", "activation", "bias", "bias_start", "initializer", "frozen", "weights"),
    *("sparseness", "delta_norm", "weight_norm", "batch_normalization", "described_by", "split", "filters"),
    *(
        "kernel",
        "stride",
        "padding",
        "function",
        "loss",
        "loss_weight",
        "delta_boost",
        "weightless",
        "sample",
    ),
}
"""Settings of layers that DSSTNE has, or that change no prediction."""


def problems_of(spec: NetworkSpec, layer: Layer) -> list[str]:
    """Return the settings of a layer that DSSTNE would compute differently, or not at all."""
    name = f'of layer "{layer.name}"'
    if isinstance(layer, RecurrentLayer | AttentionLayer):
        return [f'"kind": "{layer.kind}" {name}']
    problems = [f'"{key}" {name}' for key in layer.model_dump(exclude_defaults=True) if key not in _KNOWN]
    if isinstance(layer, InputLayer):
        return [*problems, *[f'"values": "ignore" {name}'] * (layer.values == "ignore")]
    if not spec.sources(layer):
        problems.append(f'an empty "source" {name}')
    if isinstance(layer, PoolingLayer):
        return problems
    if len(spec.sources(layer)) > _MAX_SOURCES:
        problems.append(f"more than {_MAX_SOURCES} sources {name}")
    if isinstance(layer, OutputLayer) and layer.loss.kind not in LOSSES:
        problems.append(f'"loss": "{layer.loss.kind}" {name}')
    if layer.activation.kind not in _ACTIVATIONS:
        problems.append(f'"activation": "{layer.activation.kind}" {name}')
    normalization = getattr(layer, "batch_normalization", None)
    if normalization is not None and normalization.epsilon != _EPSILON:
        problems.append(f'an "epsilon" other than {_EPSILON:g} {name}')
    return problems


def merged_sources(spec: NetworkSpec) -> dict[str, Layer]:
    """Return the layers that DSSTNE merges with a weightless output, by the output's name.

    DSSTNE has both as one layer if no other layer uses the units, and they have no activation of their own.
    """
    merged: dict[str, Layer] = {}
    for output in (output for output in spec.outputs if output.weightless):
        source = spec.layer(spec.sources(output)[0])
        others = (other for other in spec.layers if not isinstance(other, InputLayer))
        uses = sum(source.name in (*spec.sources(other), *other.skipped) for other in others)
        if uses == 1 and _can_merge(source, output):
            merged[output.name] = source
    return merged


def _can_merge(source: Layer, output: OutputLayer) -> bool:
    """Return whether DSSTNE's output can apply its activation directly to the units of a layer."""
    if isinstance(source, PoolingLayer):
        return bool(output.activation.kind == "linear")
    if not isinstance(source, HiddenLayer | ConvolutionLayer):
        return False
    plain = (
        not source.dropout
        and source.batch_normalization is None
        and getattr(source, "sparseness", None) is None
    )
    return bool(plain and source.activation.kind == "linear")


def is_placed(layer: Layer) -> bool:
    """Return whether a layer reads channels and positions, as convolutions and most poolings do."""
    return isinstance(layer, ConvolutionLayer) or (
        isinstance(layer, PoolingLayer) and layer.function.kind in (*WINDOWED, "lrn")
    )


def padding_problems(layer: Layer, windows: Windows) -> list[str]:
    """Return whether cuDNN would compute a layer's windows differently, as a list of problems.

    cuDNN pads both ends of an axis by the same amount, and places as many windows as fit.
    """
    assert isinstance(layer, ConvolutionLayer | PoolingLayer)
    even = [
        (axis.places + 2 * axis.before - axis.kernel) // axis.stride + 1 == axis.positions
        for axis in windows.axes
    ]
    return (
        []
        if all(even) or layer.padding == "dsstne"
        else [f'"padding" that is not the same on both sides of layer "{layer.name}"']
    )


def merged_attributes(
    spec: NetworkSpec, output: OutputLayer, source: Layer, shape: Shape, windows: Windows | None = None
) -> dict[str, Any]:
    """Return the attributes of an output that is merged with its source, by name.

    The smaller of their two gradient limits counts.

    Args:
        spec: The network.
        output: The weightless output.
        source: The layer whose units it takes.
        shape: Shape of the source.
        windows: Windows of the source, if it is a convolution or a pooling.
    """
    own = attributes_of(spec, output, shape)
    merged = attributes_of(spec, source, shape, windows=windows)
    merged |= {name: own[name] for name in _OUTPUT_ATTRIBUTES}
    limits = [limit for limit in (own["deltaNorm"], merged["deltaNorm"]) if limit]  # 0 means no limit
    return merged | ({"deltaNorm": min(limits)} if limits else {})


def attributes_of(
    spec: NetworkSpec,
    layer: Layer,
    shape: Shape,
    *,
    windows: Windows | None = None,
    is_sparse: bool = False,
    has_places: bool = False,
) -> dict[str, Any]:
    """Return the attributes of a layer, by name.

    Args:
        spec: The network.
        layer: One of its layers.
        shape: Channels first, then axes, slowest first; (units,) for a flat layer.
        windows: Windows of a convolution or a pooling.
        is_sparse: Whether an input's data are sparse.
        has_places: Whether windows move over an input; DSSTNE gives axes only to Convolutional inputs.
    """
    whole = _default_numbers([*shape[:0:-1], shape[0]] if len(shape) > 1 or not has_places else [*shape, 1])
    floats = _DEFAULT_FLOATS | {"pDropout": getattr(layer, "dropout", 0.0)}
    texts = {
        "name": layer.name,
        "dataSet": layer.field if isinstance(layer, InputLayer | OutputLayer) else "",
    }
    if isinstance(layer, InputLayer):
        whole["type"] = TYPES.index("Convolutional" if has_places else "FullyConnected")
        whole["attributes"] = SPARSE * is_sparse | DENOISING * (layer.denoise > 0)
    else:
        for name, others in (("source", spec.sources(layer)), ("skip", layer.skipped)):
            texts |= {f"{name}{place}": other for place, other in enumerate(others)}
            whole[f"{name}s"] = len(others)
    whole["kind"] = _kind(layer)
    if isinstance(layer, ConvolutionLayer | PoolingLayer):
        whole |= _window(layer, windows)
    if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer):
        _add_weight_settings(layer, whole, floats)
    return (
        texts
        | {name: np.uint32(value) for name, value in whole.items()}
        | {name: np.float32(value) for name, value in floats.items()}
    )


def _default_numbers(sides: Sequence[int]) -> dict[str, int]:
    """Return the whole numbers of a layer without windows, sources and weights.

    Args:
        sides: Axes, fastest first, then channels.
    """
    whole = {
        "kind": 0,
        **dict.fromkeys(SIDES, 1),
        "dimensions": len(sides),
        "type": 0,
        "poolingfunction": 0,
        "weightInit": 0,
        "activation": 0,
        "sources": 0,
        "skips": 0,
        "attributes": 0,
        "kernelDimensions": 1,
    }
    whole |= dict(zip(SIDES, sides, strict=False))
    for axis in "XYZ":
        whole |= {f"kernel{axis}": 1, f"kernelStride{axis}": 1, f"kernelPadding{axis}": 0}
    return whole


def _kind(layer: Layer) -> int:
    return LAYER_KINDS.index(
        layer.kind.capitalize() if isinstance(layer, InputLayer | OutputLayer) else "Hidden"
    )


def _window(layer: ConvolutionLayer | PoolingLayer, windows: Windows | None) -> dict[str, int]:
    """Return type, function, kernel, strides and padding, x first."""
    is_pooling = isinstance(layer, PoolingLayer)
    numbers = {"type": TYPES.index("Pooling" if is_pooling else "Convolutional")}
    if isinstance(layer, PoolingLayer):
        numbers["poolingfunction"] = FUNCTIONS.index(_FUNCTIONS[layer.function.kind])
    if windows is not None:
        numbers["kernelDimensions"] = len(windows.axes)
        for name, axis in zip("XYZ", windows.axes[::-1], strict=False):
            numbers |= {
                f"kernel{name}": axis.kernel,
                f"kernelStride{name}": axis.stride,
                f"kernelPadding{name}": axis.before,
            }
    return numbers


def _add_weight_settings(
    layer: HiddenLayer | ConvolutionLayer | OutputLayer, whole: dict[str, int], floats: dict[str, float]
) -> None:
    """Add the settings of a layer with weights: activation, initial weights, limits, penalties."""
    activation = layer.activation
    scheme, scale = _scheme(layer.initializer)
    name = (
        "ScaledExponentialLinear" if getattr(activation, "scale", 1.0) != 1 else _ACTIVATIONS[activation.kind]
    )
    whole |= {"activation": ACTIVATIONS.index(name), "weightInit": list(INITIALIZERS).index(scheme)}
    floats |= {
        "weightInitScale": scale,
        "biasInit": layer.bias_start,
        "weightNorm": getattr(layer, "weight_norm", None) or 0.0,
        "deltaNorm": layer.delta_norm or 0.0,
        "RELUSlope": getattr(activation, "slope", 1.0),
        "ELUAlpha": getattr(activation, "alpha", 1.0),
        "SELULambda": getattr(activation, "scale", 1.050701),
    }
    if activation.kind == "selu":
        floats |= _SELU
    if getattr(layer, "batch_normalization", None) is not None:
        whole["attributes"] |= BATCH_NORMALIZATION
    sparseness = getattr(layer, "sparseness", None)
    if sparseness is not None:
        whole["attributes"] |= SPARSE
        floats |= {"sparsenessPenalty_p": sparseness.target, "sparsenessPenalty_beta": sparseness.weight}


def _scheme(initializer: Any) -> tuple[str, float]:
    """Return DSSTNE's scheme and scale of an initializer.

    Initializers that DSSTNE lacks become Xavier, since the file has trained weights anyway.
    """
    for scheme, (drawn, setting, factor) in INITIALIZERS.items():
        if (initializer.kind, getattr(initializer, "low", None)) == (drawn["kind"], drawn.get("low")):
            return scheme, getattr(initializer, setting) / factor
    return "Xavier", 1.0


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
    functions = [each.function for each in spec.layers if isinstance(each, PoolingLayer)]
    boosted = [output for output in spec.outputs if output.activation.kind != "softmax"]
    penalties = [getattr(layer, "sparseness", None) for layer in spec.hidden]
    once: dict[str, list[Any]] = {
        "local response normalizations": [each for each in functions if each.kind == "lrn"],
        "losses": [output.loss for output in spec.outputs],
        "boosts of deltas": [output.delta_boost or DeltaBoost() for output in boosted],
        "denoising": [layer.denoise for layer in spec.inputs if layer.denoise],
        "penalties of sparseness": [each for each in penalties if each is not None],
    }
    several = [name for name, own in once.items() if own[1:] != own[:-1]]
    problems += [f"different {name}, of which DSSTNE has one a network" for name in several]
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
    loss, boosts = spec.outputs[0].loss, [output.delta_boost for output in spec.outputs]
    boost = next((each for each in boosts if each is not None), DeltaBoost())
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
