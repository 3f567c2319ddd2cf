"""Reader of DSSTNE's trained networks: the document in DSSTNE's JSON form, and the weights."""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.netcdf import NetcdfFile, reading
from widenet.dsstne.spec.layers import INITIALIZERS
from widenet.dsstne.spec.network import MARGINS
from widenet.dsstne.spec.settings import Names
from widenet.errors import DataError
from widenet.plan.binding import axis_of

NETWORK_KINDS = ("FeedForward", "AutoEncoder")
LAYER_KINDS = ("Input", "Hidden", "Output", "Target")
TYPES = ("FullyConnected", "Convolutional", "Pooling")
FUNCTIONS = (
    "None",
    "Max",
    "Average",
    "LRN",
    "Maxout",
    "DotProduct",
    "Cosine",
    "Stochastic",
    "LCN",
    "GlobalTemporal",
)
_WINDOWED = ("Max", "Average")
ACTIVATIONS = (
    "Sigmoid",
    "Tanh",
    "RectifiedLinear",
    "Linear",
    "ParametricRectifiedLinear",
    "SoftPlus",
    "SoftSign",
    "SoftMax",
    "RELUMax",
    "LinearMax",
    "ExponentialLinear",
    "LeakyRectifiedLinear",
    "ScaledExponentialLinear",
)
_UNNAMED_ACTIVATION = "ParametricRectifiedLinear"
"""An activation without a name in DSSTNE's JSON; DSSTNE computes it as linear."""
ERRORS = (
    "L1",
    "L2",
    "CrossEntropy",
    "ScaledMarginalCrossEntropy",
    "DataScaledMarginalCrossEntropy",
    "Hinge",
    "L2Hinge",
)
SPARSE, DENOISING, BATCH_NORMALIZATION = 1, 2, 4
"""Bits of a layer's attributes."""
SIDES = ("Nx", "Ny", "Nz", "Nw")
NORMALIZATION = {
    "scale": "scaleBN",
    "shift": "biasBN",
    "mean": "runningMeanBN",
    "variance": "runningVarianceBN",
}
"""Variables of the file by the tensors of a batch normalization."""

Numbers = NDArray[np.float32]


@dataclass
class Connection:
    """The weights and the bias between a source and a layer.

    Attributes:
        weights: Flat weights; None if the connection uses those of `shared`.
        bias: The bias.
        shared: Source and layer of the connection that has the weights.
        transposed: Whether the shared weights are transposed.
    """

    weights: Numbers | None
    bias: Numbers
    shared: tuple[str, str] | None = None
    transposed: bool = False


@dataclass
class ModelFile:
    """A trained network as read from a file.

    Attributes:
        path: The file.
        network: The network in the form of DSSTNE's JSON.
        sides: Dimensions of each layer, x first.
        connections: Connections by source and layer.
        normalizations: Batch normalizations by layer and the names of NORMALIZATION.
        paddings: Paddings of the layers that differ from DSSTNE's default, x first.
        names: Names of the layers by those in the file, of which not all are allowed in network documents.
    """

    path: Path
    network: dict[str, Any]
    sides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    connections: dict[tuple[str, str], Connection] = field(default_factory=dict)
    normalizations: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    paddings: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: Names = field(default_factory=Names)

    def units(self, layer: str) -> int:
        """Return the number of units of a layer."""
        return prod(self.sides[layer])

    def layer(self, name: str) -> dict[str, Any]:
        """Return a layer in the form of DSSTNE's JSON."""
        return next(layer for layer in self.network["Layers"] if layer["Name"] == name)

    def matrix(self, source: str, layer: str) -> Numbers:
        """Return the weights of a full connection, own or shared, [layer units, source units]."""
        connection = self.connections[source, layer]
        if connection.weights is not None:
            return connection.weights.reshape(self.units(source), self.units(layer)).T
        assert connection.shared is not None
        owner = self.matrix(*connection.shared)
        return owner.T if connection.transposed else owner

    def filters(self, source: str, layer: str, count: int) -> Numbers:
        """Return the weights of a convolution, own or shared, [filters, channels * kernel positions]."""
        connection = self.connections[source, layer]
        if connection.weights is None:
            assert connection.shared is not None
            return self.filters(*connection.shared, count)
        return connection.weights.reshape(count, -1)


def read_model(path: Path) -> ModelFile:
    """Read a trained network; settings that older versions did not write get their defaults.

    Raises:
        DataError: The message names the file, the attribute or variable, and the rule.
    """
    with reading(path) as file:
        windowed: dict[str, str] = {}
        DataError.require(
            file.has("layers"), "must hold a trained network; attribute 'layers' is missing", place=path
        )
        model = ModelFile(path, _network(file))
        for number in range(file.whole("layers", minimum=1)):
            layer, sides = _layer(file, f"layer{number}_", model.names)
            DataError.require(
                layer["Name"] not in model.sides,
                f"the names of layers must differ; {layer['Name']!r} appears twice",
                place=path,
            )
            model.network["Layers"].append(layer)
            model.sides[layer["Name"]] = sides
            if layer.get("BatchNormalization"):
                model.normalizations[layer["Name"]] = _normalization(file, f"layer{number}_")
            if "Kernel" in layer and layer.get("Function", "Max") in _WINDOWED:
                windowed[layer["Name"]] = f"layer{number}_"
        for number in range(file.whole("weights")):
            _add_connection(file, f"weight{number}_", model)
        for name, prefix in windowed.items():
            _read_padding(file, prefix, model, name)
    _check_connections(model)
    return model


def _network(file: NetcdfFile) -> dict[str, Any]:
    """Read the settings of the whole network."""
    network: dict[str, Any] = {
        "Version": file.number("version", 0.9),
        "Name": file.text("name", ""),
        "Kind": file.choice("kind", NETWORK_KINDS, "FeedForward"),
        "ErrorFunction": file.choice("errorFunction", ERRORS, "CrossEntropy"),
        "ShuffleIndices": bool(file.whole("ShuffleIndices", default=1)),
        "Maxout": {"k": file.whole("maxout_k", default=2)},
        "LocalResponseNormalization": {
            "k": file.number("LRN_k", 2.0),
            "n": file.whole("LRN_n", default=5),
            "alpha": file.number("LRN_alpha", 1e-4),
            "beta": file.number("LRN_beta", 0.75),
        },
        "DeltaBoost": {name: file.number(f"deltaBoost_{name}", 1.0) for name in ("one", "zero")},
        "ScaledMarginalCrossEntropy": {
            key: file.number(f"SMCE_{key}", default) for key, (_, default, _) in MARGINS.items()
        },
        "Layers": [],
    }
    if file.has("decay"):
        network["Decay"] = file.number("decay")
    if file.whole("bSparsenessPenalty", default=0):
        network["SparsenessPenalty"] = {
            name: file.number(f"sparsenessPenalty_{name}") for name in ("p", "beta")
        }
    if file.whole("bDenoising", default=0):
        network["Denoising"] = {"p": file.number("denoising_p")}
    return network


def _layer(file: NetcdfFile, prefix: str, names: Names) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Read a layer and its sides."""
    kind, form = (
        file.choice(f"{prefix}kind", LAYER_KINDS),
        file.choice(f"{prefix}type", TYPES, "FullyConnected"),
    )
    attributes = file.whole(f"{prefix}attributes", default=0)
    sides = tuple(file.whole(f"{prefix}{side}", minimum=1, default=1) for side in SIDES)
    num_sides = 1 + max(place for place in range(len(SIDES)) if place == 0 or sides[place] > 1)
    sides = sides[: file.whole(f"{prefix}dimensions", minimum=1, default=num_sides, maximum=len(SIDES))]
    layer: dict[str, Any] = {
        "Name": names[file.text(f"{prefix}name")],
        "Kind": kind,
        "Type": form,
        "Sparse": bool(attributes & SPARSE),
    }
    if kind in ("Input", "Output"):
        layer["DataSet"] = file.text(f"{prefix}dataSet", "") or layer["Name"]
    layer["pDropout"] = file.number(f"{prefix}pDropout", 0.0)
    if kind == "Input":
        return layer | {"N": [prod(sides)] if layer["Sparse"] else list(sides)}, sides
    for key, name in (("Source", "source"), ("Skip", "skip")):
        layer[key] = [
            names[file.text(f"{prefix}{name}{number}")]
            for number in range(file.whole(f"{prefix}{name}s", default=0))
        ]
    if form != "FullyConnected":
        axes = file.whole(f"{prefix}kernelDimensions", minimum=1, default=1, maximum=3)
        layer["Kernel"] = [file.whole(f"{prefix}kernel{axis}", minimum=1) for axis in "XYZ"[:axes]]
        layer["KernelStride"] = [
            file.whole(f"{prefix}kernelStride{axis}", minimum=1) for axis in "XYZ"[:axes]
        ]
    if form == "Pooling":
        return layer | {"Function": file.choice(f"{prefix}poolingfunction", FUNCTIONS)}, sides
    layer["N"] = list(sides) if form == "FullyConnected" else sides[-1]
    if kind == "Hidden":
        layer["BatchNormalization"] = bool(attributes & BATCH_NORMALIZATION)
    layer["WeightInit"] = {
        "Scheme": file.choice(f"{prefix}weightInit", tuple(INITIALIZERS), "Xavier"),
        "Scale": file.number(f"{prefix}weightInitScale", 1.0),
        "Bias": file.number(f"{prefix}biasInit", 0.0),
    }
    layer["WeightNorm"], layer["DeltaNorm"] = (
        file.number(f"{prefix}weightNorm", 0.0),
        file.number(f"{prefix}deltaNorm", 0.0),
    )
    activation = file.choice(f"{prefix}activation", ACTIVATIONS, "Sigmoid")
    layer["Activation"] = "Linear" if activation == _UNNAMED_ACTIVATION else activation
    for key, default in (("RELUSlope", 1.0), ("ELUAlpha", 1.0), ("SELULambda", 1.050701)):
        layer[key] = file.number(f"{prefix}{key}", default)
    return layer, sides


def _normalization(file: NetcdfFile, prefix: str) -> dict[str, Numbers]:
    length = file.length(f"{prefix}bnDim")
    return {name: _numbers(file, f"{prefix}{variable}", length) for name, variable in NORMALIZATION.items()}


def _read_padding(file: NetcdfFile, prefix: str, model: ModelFile, name: str) -> None:
    """Store the padding of a layer's windows if it differs from DSSTNE's default.

    Raises DataError if the windows do not give the layer's sides.
    """
    layer, axes = model.layer(name), len(model.layer(name)["Kernel"])
    source = model.sides.get(layer["Source"][0], ()) if layer["Source"] else ()
    keys = [f"{prefix}kernelPadding{axis}" for axis in "XYZ"[:axes]]
    if not all(file.has(key) for key in keys) or len(source) < axes:
        return
    padding, sides = tuple(file.whole(key) for key in keys), model.sides[name][:axes]
    moves = list(zip(source, layer["Kernel"], layer["KernelStride"], strict=False))
    default = [axis_of(*move, "dsstne") for move in moves]
    if (
        tuple(axis.before for axis in default) == padding
        and tuple(axis.positions for axis in default) == sides
    ):
        return
    positions = tuple(axis_of(*move, room).positions for move, room in zip(moves, padding, strict=True))
    rule = f"must have as many places as its kernel has positions, {list(positions)}"
    DataError.require(positions == sides, rule, place=f"{model.path}: layer {name!r}", value=list(sides))
    model.paddings[name] = padding


def _add_connection(file: NetcdfFile, prefix: str, model: ModelFile) -> None:
    """Read a connection; raises DataError if its layers do not exist or its weights have another size."""
    source, name = (model.names[file.text(f"{prefix}{end}Layer")] for end in ("input", "output"))
    for end in (source, name):
        DataError.require(
            end in model.sides,
            f"{prefix}inputLayer and {prefix}outputLayer must name layers",
            place=file.path,
            value=end,
        )
    if (source, name) in model.connections or source not in model.layer(name).get("Source", []):
        problem = (
            "appear twice" if (source, name) in model.connections else f"belong to no source of {name!r}"
        )
        raise DataError(
            f"must have weights once for each of its sources; those of {source!r} {problem}",
            place=f"{file.path}: layer {name!r}",
        )
    is_full = model.layer(name)["Type"] == "FullyConnected"
    bias = _numbers(file, f"{prefix}bias", model.units(name) if is_full else model.sides[name][-1])
    if file.whole(f"{prefix}bShared", default=0):
        start, end = (model.names[file.text(f"{prefix}source{end}Layer")] for end in ("Input", "Output"))
        model.connections[source, name] = Connection(
            None, bias, (start, end), bool(file.whole(f"{prefix}bTransposed", default=0))
        )
        return
    weights = _numbers(file, f"{prefix}weights", model.units(source) * model.units(name) if is_full else None)
    model.connections[source, name] = Connection(weights, bias)


def _numbers(file: NetcdfFile, name: str, length: int | None) -> Numbers:
    column = file.column(name, length)
    return column.floats(0, len(column))


def _check_connections(model: ModelFile) -> None:
    """Raise DataError unless every source has weights, and shared weights have the right shape."""
    for layer in model.network["Layers"]:
        for source in layer.get("Source", []):
            DataError.require(
                layer["Type"] == "Pooling" or (source, layer["Name"]) in model.connections,
                f"must have weights from its source {source!r}; they are missing",
                place=f"{model.path}: layer {layer['Name']!r}",
            )
    for (source, name), connection in model.connections.items():
        if connection.shared is None:
            continue
        owner = model.connections.get(connection.shared)
        if owner is None or owner.weights is None:
            rule = f"must be those of a connection that has its own; got {' to '.join(connection.shared)}"
            raise DataError(f"the shared weights of {source!r} to {name!r} {rule}", place=model.path)
