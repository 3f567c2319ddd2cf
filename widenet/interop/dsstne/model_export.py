"""Runs, written as DSSTNE's trained networks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.errors import FitError
from widenet.interop.dsstne.layer_attributes import LOSSES, attributes_of, problems_of
from widenet.interop.dsstne.model_file import ERRORS, NORMALIZATION
from widenet.interop.dsstne.netcdf import writing
from widenet.model.network import Network
from widenet.plan.weights import Link
from widenet.runs import Model
from widenet.spec.layers import HiddenLayer, InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import InverseSchedule
from widenet.spec.pooling import LocalResponseNormalization
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer
from widenet.spec.training import TrainingSpec

_MARGINS = {
    "oneScale": ("one_scale", 1.0),
    "zeroScale": ("zero_scale", 1.0),
    "oneTarget": ("one_target", 0.9),
    "zeroTarget": ("zero_target", 0.1),
}
"""Settings of the scaled marginal cross-entropy, and DSSTNE's defaults."""
Numbers = NDArray[np.float32]


def export_model(run: Model | Path | str, out: Path | str) -> None:
    """Write a run as a network that DSSTNE predicts with; a file of that name is replaced.

    Layers, activations, weights and biases are those of the run, and so is what guides a training as far as DSSTNE knows it.
    Raises FitError naming everything that DSSTNE would compute in another way.
    """
    model = run if isinstance(run, Model) else Model.load(run, "cpu")
    kinds = {name: record.kind for name, record in model.run.fields.items()}
    write_network(model.network, model.run.training, kinds, Path(out), str(model.run.path))


def write_network(network: Network, training: TrainingSpec, kinds: Mapping[str, str], out: Path, where: str) -> None:
    """Write a network, of which this process holds all shards, as `export_model` does.

    kinds: of its fields, "sparse" or "dense". where: what an error begins with.
    """
    spec = network.spec
    problems = [problem for layer in spec.layers for problem in problems_of(spec, layer)]
    losses = {output.loss.kind for output in spec.outputs}
    if len(losses) > 1:
        problems.append(f"losses of several kinds ({', '.join(sorted(losses))})")
    if problems:
        raise FitError(f"{where}: the network must be made of what DSSTNE computes alike; it has {'; '.join(problems)}.")
    learnt = [layer for layer in spec.layers if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer)]
    connections = [found for layer in learnt for found in _connections(network, layer)]
    with writing(out) as file:
        _write_network(file, spec, training, len(connections))
        for number, layer in enumerate(spec.layers):
            is_sparse = isinstance(layer, InputLayer) and kinds[layer.field] == "sparse"
            _set(file, f"layer{number}_", attributes_of(spec, layer, network.shapes[layer.name], is_sparse))
            if getattr(layer, "batch_normalization", None) is not None:
                _write_normalization(file, f"layer{number}_", network, layer.name)
        for number, connection in enumerate(connections):
            connection.write(file, f"weight{number}_")


@dataclass(frozen=True)
class _Connection:
    """What lies between a source and a layer. weights: None where they are those of `owner`."""

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


def _connections(network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer) -> Iterator[_Connection]:
    """A layer's connections; its bias stands beside the first."""
    sources, start = network.spec.sources(layer), 0
    for place, source in enumerate(sources):
        bias = _bias(network, layer) if place == 0 else np.zeros_like(_bias(network, layer))
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


def _weights(network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer, link: Link, start: int, stop: int) -> Numbers:
    """The weights [units of the source, units of the layer], of a convolution [filters, channels and places of the kernel].

    start, stop: where an output of several sources has those of one.
    """
    if isinstance(layer, OutputLayer):
        return _whole(network, link.weight)[:, start:stop].T
    if link.weight in network.wide:
        return _whole(network, link.weight)
    weights: Numbers = network.trunk[link.weight].tensor.detach().cpu().numpy()
    return weights if link.transposed or isinstance(layer, ConvolutionLayer) else weights.T


def _bias(network: Network, layer: HiddenLayer | ConvolutionLayer | OutputLayer) -> Numbers:
    """The bias of a layer, of a convolution one number a filter; zeros where it has none."""
    name = f"{layer.name} bias"
    if not layer.bias:
        return np.zeros(network.shapes[layer.name][0], np.float32)
    if isinstance(layer, OutputLayer):
        return _whole(network, name)
    bias: Numbers = network.trunk[name].tensor.detach().cpu().numpy()
    return bias


def _whole(network: Network, name: str) -> Numbers:
    """A wide weight, its shards one after the other."""
    parts = network.wide[name].parts
    return np.concatenate([parts[shard].weight.detach().cpu().numpy() for shard in sorted(parts)])


def _write_network(file: Any, spec: NetworkSpec, training: TrainingSpec, num_connections: int) -> None:
    """The attributes of the whole network."""
    denoising, loss, boost = max(layer.denoise for layer in spec.inputs), spec.outputs[0].loss, spec.outputs[0].delta_boost
    sparse = next((layer.sparseness for layer in spec.hidden if isinstance(layer, HiddenLayer) and layer.sparseness), None)
    pooling = (layer.function for layer in spec.hidden if isinstance(layer, PoolingLayer))
    lrn = next((found for found in pooling if isinstance(found, LocalResponseNormalization)), LocalResponseNormalization(kind="lrn"))
    floats = {"version": 0.9, "LRN_k": lrn.k, "LRN_alpha": lrn.alpha, "LRN_beta": lrn.beta, "denoising_p": denoising}
    floats |= {"sparsenessPenalty_p": sparse.target if sparse else 0.0, "sparsenessPenalty_beta": sparse.weight if sparse else 0.0}
    floats |= {"deltaBoost_one": boost.target if boost else 1.0, "deltaBoost_zero": boost.other if boost else 1.0}
    floats |= {f"SMCE_{key}": getattr(loss, name, usual) for key, (name, usual) in _MARGINS.items()}
    if isinstance(training.schedule, InverseSchedule):
        floats["decay"] = training.schedule.decay
    flags = {"kind": 0, "errorFunction": ERRORS.index(LOSSES[loss.kind]), "bSparsenessPenalty": sparse is not None}
    flags |= {"bDenoising": denoising > 0, "ShuffleIndices": training.shuffle, "layers": len(spec.layers), "weights": num_connections}
    whole = {"maxout_k": 2, "LRN_n": lrn.n, "checkpoint_interval": 0, "checkpoint_epochs": 0}
    _set(file, "", {"name": spec.name, "checkpoint_name": ""})
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
        file.setncattr(f"{prefix}{name}", value)
