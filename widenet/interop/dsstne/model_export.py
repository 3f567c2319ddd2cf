"""Runs, written as DSSTNE's trained networks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.errors import FitError
from widenet.interop.dsstne.model_file import ACTIVATIONS, BATCH_NORMALIZATION, ERRORS, LAYER_KINDS, NORMALIZATION, SCHEMES, SPARSE
from widenet.interop.dsstne.netcdf import writing
from widenet.model.network import Network
from widenet.plan.weights import Link
from widenet.runs import Model
from widenet.spec.layers import HiddenLayer, InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec

_ACTIVATIONS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "RectifiedLinear",
    "linear": "Linear",
    "softmax": "SoftMax",
    "elu": "ExponentialLinear",
    "leaky_relu": "LeakyRectifiedLinear",
    "selu": "ScaledExponentialLinear",
}
"""The activations that DSSTNE computes as they are defined."""
_LOSSES = {
    "l1": "L1",
    "l2": "L2",
    "cross_entropy": "CrossEntropy",
    "scaled_marginal_cross_entropy": "ScaledMarginalCrossEntropy",
    "data_scaled_marginal_cross_entropy": "DataScaledMarginalCrossEntropy",
    "hinge": "Hinge",
    "l2_hinge": "L2Hinge",
}
_MARGINS = {
    "oneScale": ("one_scale", 1.0),
    "zeroScale": ("zero_scale", 1.0),
    "oneTarget": ("one_target", 0.9),
    "zeroTarget": ("zero_target", 0.1),
}
"""Settings of the scaled marginal cross-entropy, and DSSTNE's defaults."""
_SELU = {"ELUAlpha": 1.6732632423543772, "SELULambda": 1.0507009873554805}
_MOST_SOURCES = 4

Numbers = NDArray[np.float32]


def export_model(run: Model | Path | str, out: Path | str) -> None:
    """Write a run as a network that DSSTNE predicts with; a file of that name is replaced.

    Layers, activations, weights and biases are those of the run; of what guides a training, the loss, dropout, denoising and weight_norm.
    Raises FitError naming everything that DSSTNE would compute in another way.
    """
    model = run if isinstance(run, Model) else Model.load(run, "cpu")
    network, spec = model.network, model.network.spec
    problems = [problem for layer in spec.layers for problem in _problems(spec, layer)]
    losses = {output.loss.kind for output in spec.outputs}
    if len(losses) > 1:
        problems.append(f"losses of several kinds ({', '.join(sorted(losses))})")
    if problems:
        raise FitError(f"{model.run.path}: the network must be made of what DSSTNE computes alike; it has {'; '.join(problems)}.")
    layers = [layer for layer in spec.layers if isinstance(layer, InputLayer | HiddenLayer | OutputLayer)]
    connections = [found for layer in layers if not isinstance(layer, InputLayer) for found in _connections(network, layer)]
    with writing(Path(out)) as file:
        _write_network(file, spec, model.run.training.shuffle, len(connections))
        for number, layer in enumerate(layers):
            is_sparse = isinstance(layer, InputLayer) and model.run.fields[layer.field].kind == "sparse"
            _set(file, f"layer{number}_", _layer(spec, layer, network.units[layer.name], is_sparse))
            if isinstance(layer, HiddenLayer) and layer.batch_normalization is not None:
                _write_normalization(file, f"layer{number}_", network, layer.name)
        for number, connection in enumerate(connections):
            connection.write(file, f"weight{number}_")


@dataclass(frozen=True)
class _Connection:
    """What lies between a source and a layer. weights: [units of the source, units of the layer]; None where they are those of `owner`."""

    source: str
    layer: str
    weights: Numbers | None
    bias: Numbers
    owner: tuple[str, str] | None = None
    transposed: bool = False

    def write(self, file: Any, prefix: str) -> None:
        """Write its attributes and numbers."""
        _set(file, prefix, {"inputLayer": self.source, "outputLayer": self.layer, "bLocked": np.uint32(0), "norm": np.float32(0)})
        _set(file, prefix, {"bShared": np.uint32(self.weights is None)})
        columns = {"bias": ("bias", self.bias)}
        if self.weights is None:
            assert self.owner is not None
            owner = {"sourceInputLayer": self.owner[0], "sourceOutputLayer": self.owner[1], "bTransposed": np.uint32(self.transposed)}
            _set(file, prefix, owner)
        else:
            sides = {"width": self.weights.shape[1], "height": self.weights.shape[0], "length": 1, "depth": 1, "breadth": 1}
            _set(file, prefix, {side: np.uint64(length) for side, length in sides.items()})
            columns["weights"] = ("weight", np.ascontiguousarray(self.weights).reshape(-1))
        for name, (dimension, flat) in columns.items():
            file.createDimension(f"{prefix}{dimension}Dim", len(flat))
            file.createVariable(f"{prefix}{name}", "f4", (f"{prefix}{dimension}Dim",))[:] = flat


def _problems(spec: NetworkSpec, layer: Any) -> list[str]:
    """What DSSTNE would compute otherwise of a layer, or not at all."""
    found = []
    if not isinstance(layer, InputLayer | HiddenLayer | OutputLayer):
        return [f'"kind": "{layer.kind}" of layer "{layer.name}"']
    usual = {"scale": "none", "values": "use", "popularity_damping": 0.0, "cosine": None}
    if isinstance(layer, OutputLayer):
        del usual["values"]
        if layer.loss.kind not in _LOSSES:
            found.append(f'"loss": "{layer.loss.kind}" of layer "{layer.name}"')
    for key, value in usual.items():
        if getattr(layer, key, value) != value:
            found.append(f'"{key}" of layer "{layer.name}"')
    if isinstance(layer, InputLayer):
        return found
    if layer.activation.kind not in _ACTIVATIONS:
        found.append(f'"activation": "{layer.activation.kind}" of layer "{layer.name}"')
    if len(spec.sources(layer)) > _MOST_SOURCES:
        found.append(f'more than {_MOST_SOURCES} sources of layer "{layer.name}"')
    return found


def _connections(network: Network, layer: HiddenLayer | OutputLayer) -> Iterator[_Connection]:
    """A layer's connections; its bias stands beside the first."""
    sources, units, start = network.spec.sources(layer), network.units[layer.name], 0
    for place, source in enumerate(sources):
        bias = _bias(network, layer) if place == 0 else np.zeros(units, np.float32)
        link = network.links[layer.name, "" if isinstance(layer, OutputLayer) else source]
        owner = _owner(network, link)
        if owner not in (None, (source, layer.name)) and len(sources) * isinstance(layer, OutputLayer) <= 1:
            yield _Connection(source, layer.name, None, bias, owner, link.transposed)
            continue
        stop = start + network.units[source]
        yield _Connection(source, layer.name, _weights(network, layer, link, start, stop), bias)
        start = stop


def _owner(network: Network, link: Link) -> tuple[str, str] | None:
    """The source and the layer between which a weight lies; None for one that lies between several sources and an output."""
    if link.weight in network.outputs:
        sources = network.spec.sources(network.outputs[link.weight].spec)
        return (sources[0], link.weight) if len(sources) == 1 else None
    layer, _, source = link.weight.partition("/")
    return source, layer


def _weights(network: Network, layer: HiddenLayer | OutputLayer, link: Link, start: int, stop: int) -> Numbers:
    """The weights [units of the source, units of the layer]; start, stop: where an output of several sources has them."""
    if isinstance(layer, OutputLayer):
        return _whole(network, link.weight)[:, start:stop].T
    if link.weight in network.wide:
        return _whole(network, link.weight)
    weights: Numbers = network.trunk[link.weight].tensor.detach().cpu().numpy()
    return weights if link.transposed else weights.T


def _bias(network: Network, layer: HiddenLayer | OutputLayer) -> Numbers:
    name = f"{layer.name} bias"
    if not layer.bias:
        return np.zeros(network.units[layer.name], np.float32)
    if isinstance(layer, OutputLayer):
        return _whole(network, name)
    bias: Numbers = network.trunk[name].tensor.detach().cpu().numpy()
    return bias


def _whole(network: Network, name: str) -> Numbers:
    """A wide weight, its shards one after the other."""
    parts = network.wide[name].parts
    return np.concatenate([parts[shard].weight.detach().cpu().numpy() for shard in sorted(parts)])


def _write_normalization(file: Any, prefix: str, network: Network, name: str) -> None:
    for part, variable in NORMALIZATION.items():
        numbers = network.trunk[f"{name} normalization {part}"].tensor.detach().cpu().numpy()
        if f"{prefix}bnDim" not in file.dimensions:
            file.createDimension(f"{prefix}bnDim", len(numbers))
        file.createVariable(f"{prefix}{variable}", "f4", (f"{prefix}bnDim",))[:] = numbers


def _write_network(file: Any, spec: NetworkSpec, shuffle: bool, num_connections: int) -> None:
    """The attributes of the whole network."""
    denoising = max(layer.denoise for layer in spec.inputs)
    loss = spec.outputs[0].loss
    floats = {"version": 0.9, "LRN_k": 2, "LRN_alpha": 1e-4, "LRN_beta": 0.75, "denoising_p": denoising}
    floats |= {"sparsenessPenalty_p": 0, "sparsenessPenalty_beta": 0, "deltaBoost_one": 1, "deltaBoost_zero": 1}
    floats |= {f"SMCE_{key}": getattr(loss, name, usual) for key, (name, usual) in _MARGINS.items()}
    flags = {"kind": 0, "errorFunction": ERRORS.index(_LOSSES[loss.kind]), "bSparsenessPenalty": 0, "bDenoising": denoising > 0}
    flags |= {"ShuffleIndices": shuffle, "layers": len(spec.layers), "weights": num_connections}
    whole = {"maxout_k": 2, "LRN_n": 5, "checkpoint_interval": 0, "checkpoint_epochs": 0}
    _set(file, "", {"name": spec.name, "checkpoint_name": ""})
    _set(file, "", {name: np.float32(value) for name, value in floats.items()})
    _set(file, "", {name: np.uint32(value) for name, value in flags.items()})
    _set(file, "", {name: np.int32(value) for name, value in whole.items()})


def _layer(spec: NetworkSpec, layer: InputLayer | HiddenLayer | OutputLayer, units: int, is_sparse: bool) -> dict[str, Any]:
    """The attributes of a layer."""
    whole = dict.fromkeys(("type", "poolingfunction", "weightInit", "activation", "sources", "skips", "attributes"), 0)
    whole |= dict.fromkeys(("Ny", "Nz", "Nw", "dimensions", "kernelX", "kernelY", "kernelZ", "kernelDimensions"), 1)
    whole |= dict.fromkeys(("kernelStrideX", "kernelStrideY", "kernelStrideZ"), 1)
    whole |= dict.fromkeys(("kernelPaddingX", "kernelPaddingY", "kernelPaddingZ"), 0)
    floats = dict.fromkeys(("pDropout", "biasInit", "weightNorm", "deltaNorm", "sparsenessPenalty_p", "sparsenessPenalty_beta"), 0.0)
    floats |= {"weightInitScale": 1.0, "RELUSlope": 1.0, "ELUAlpha": 1.0, "SELULambda": 1.050701}
    texts = {"name": layer.name, "dataSet": "" if isinstance(layer, HiddenLayer) else layer.field}
    whole |= {"kind": LAYER_KINDS.index(layer.kind.capitalize()), "Nx": units}
    if isinstance(layer, InputLayer):
        whole["attributes"] = SPARSE * is_sparse
        floats["pDropout"] = layer.dropout
    else:
        activation = layer.activation
        whole |= {"activation": ACTIVATIONS.index(_ACTIVATIONS[activation.kind]), "weightInit": SCHEMES.index("Xavier")}
        floats |= {"biasInit": layer.bias_start, "weightNorm": layer.weight_norm or 0.0}
        if isinstance(layer, HiddenLayer):
            floats["pDropout"] = layer.dropout
            whole |= {"skips": len(layer.skip or ()), "attributes": BATCH_NORMALIZATION * (layer.batch_normalization is not None)}
            texts |= {f"skip{place}": name for place, name in enumerate(layer.skip or ())}
        floats |= {"RELUSlope": getattr(activation, "slope", 1.0), "ELUAlpha": getattr(activation, "alpha", 1.0)}
        floats |= _SELU if activation.kind == "selu" else {}
        sources = spec.sources(layer)
        texts |= {f"source{place}": source for place, source in enumerate(sources)}
        whole["sources"] = len(sources)
    return texts | {name: np.uint32(value) for name, value in whole.items()} | {name: np.float32(value) for name, value in floats.items()}


def _set(file: Any, prefix: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        file.setncattr(f"{prefix}{name}", value)
