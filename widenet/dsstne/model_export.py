"""Export of runs to DSSTNE's trained networks."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from widenet.dsstne.connections import Block, Connection, blocks_of, connections_of
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
from widenet.errors import FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.runs import Model
from widenet.spec.activations import LocalResponseNormalization
from widenet.spec.layers import HiddenLayer, InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.optimizers import InverseSchedule
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer
from widenet.spec.training import TrainingSpec

_MARGINS = {
    "oneScale": ("one_scale", 1.0),
    "zeroScale": ("zero_scale", 1.0),
    "oneTarget": ("one_target", 0.9),
    "zeroTarget": ("zero_target", 0.1),
}
"""Settings of the scaled marginal cross-entropy, with DSSTNE's defaults."""
_CHECKPOINT_NAME = "checkpoint"
"""DSSTNE's default name for checkpoints; it writes none because the interval is 0."""


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
            f"{where}: the network must have only parts that DSSTNE computes in the same way; it has"
            f" {'; '.join(problems)}."
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
    denoising, loss, boost = (
        max(layer.denoise for layer in spec.inputs),
        spec.outputs[0].loss,
        spec.outputs[0].delta_boost,
    )
    sparse = next(
        (
            layer.sparseness
            for layer in spec.hidden
            if isinstance(layer, HiddenLayer | ConvolutionLayer) and layer.sparseness
        ),
        None,
    )
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
    }
    floats |= {
        "sparsenessPenalty_p": sparse.target if sparse else 0.0,
        "sparsenessPenalty_beta": sparse.weight if sparse else 0.0,
    }
    floats |= {
        "deltaBoost_one": boost.target if boost else 1.0,
        "deltaBoost_zero": boost.other if boost else 1.0,
    }
    floats |= {f"SMCE_{key}": getattr(loss, name, default) for key, (name, default) in _MARGINS.items()}
    floats["decay"] = training.schedule.decay if isinstance(training.schedule, InverseSchedule) else 0.0
    flags = {
        "kind": 0,
        "errorFunction": ERRORS.index(LOSSES[loss.kind]),
        "bSparsenessPenalty": sparse is not None,
    }
    flags |= {
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
