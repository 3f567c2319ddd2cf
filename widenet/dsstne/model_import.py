"""Import of DSSTNE's trained networks as runs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.messages import ignore_message
from widenet.dsstne.model_file import ModelFile, Numbers, read_model
from widenet.dsstne.netcdf import read_names
from widenet.dsstne.spec.network import Translation, translation
from widenet.errors import DataError, DocumentError, FitError, OptionError, nearest
from widenet.interop.import_network import Imported, reading, write_run
from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.runs import Model
from widenet.spec.losses import CROSS_ENTROPIES
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_TRAINING = {
    "epochs": 40,
    "batch_size": 1024,
    "optimizer": {"kind": "sgd", "learning_rate": 0.025},
    "l2": 0.0001,
}
"""Defaults of DSSTNE's command `train`."""


def import_model(
    source: Path | str,
    out: Path | str,
    *,
    data: Dataset | Path | str | None = None,
    features: Mapping[str, Path | str] | Path | str | None = None,
    fields: Mapping[str, str] | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
) -> Model:
    """Import a network that DSSTNE trained as a run, which can predict and start further trainings.

    Each data set of the network becomes a field of the same name. Padding units of a layer stay in the
    network; if an index file names fewer features, widenet never recommends the padding. The documents of the
    run keep DSSTNE's arithmetic. Shared weights that a network document cannot express are copied, and a
    further training then changes each copy by itself.

    Args:
        source: The trained network, NetCDF.
        out: The run directory to make.
        data: Dataset with these fields, whose features the network knows. Excludes `features`.
        features: Index file of every sparse field, or index files by field. Without `data` and `features`, a
            feature is named by its index.
        fields: New names of fields, by the network's names.
        overwrite: Whether to replace an earlier run at `out`.
        say: Receives a sentence for each setting that was left out or works differently.

    Returns:
        The model of the new run.

    Raises:
        DataError, DocumentError, FitError, CheckpointError, OptionError: No files are left behind.
    """
    OptionError.require(data is None or features is None, "excludes `features`", option="data")
    report = say or ignore_message
    file = read_model(Path(source))
    for layer in file.network["Layers"]:
        if layer["Type"] == "Convolutional" and layer.pop("WeightNorm", 0):
            report(f'{source}: WeightNorm of the convolution "{layer["Name"]}" has no effect.')
    shares: list[tuple[str, str]] = []
    for key, connection in file.connections.items():
        if connection.shared is not None and _is_document(file, [*shares, key]):
            shares.append(key)
    document, layers, notes = _translated(file, shares)
    for note in notes:
        report(note)
    with reading(file.path, "trained network"):
        weights = _weights(file, layers)
    imported = Imported(
        name=str(source),
        layers=layers,
        fields=_fields(file, layers),
        weights=weights,
        training=TrainingSpec.of(_TRAINING | document.training, str(source)),
        settings=document.network,
    ).with_fields(fields or {})
    dataset = Dataset.open(data) if isinstance(data, Path | str) else data
    names = _names_of_features(imported.fields, features)
    widths = {name: len(each) for name, each in names.items()}
    if dataset is not None:
        widths = {name: field.width for name, field in dataset.fields.items()}
    imported.fields = {
        name: Width(widths.get(name, facts.width), facts.kind) for name, facts in imported.fields.items()
    }
    return write_run(imported, Path(out), dataset, overwrite, names)


def _translated(
    file: ModelFile, shares: Collection[tuple[str, str]]
) -> tuple[Translation, list[dict[str, Any]], list[str]]:
    """Return the document, its layers, and notes; `shares`: connections whose weights are not copies."""
    network = deepcopy(file.network)
    by_name = {layer["Name"]: layer for layer in network["Layers"]}
    for source, name in shares:
        connection = file.connections[source, name]
        ends = (source, *(connection.shared or ()), connection.transposed)
        keys = ("InputLayer", "SourceInputLayer", "SourceOutputLayer", "Transposed")
        by_name[name].setdefault("SharedWeights", []).append(dict(zip(keys, ends, strict=True)))
    document = translation(network, str(file.path))
    layers = document.network.pop("layers")
    _set_padding(file, layers)
    return document, layers, [*file.names.notes, *document.notes, *_without_gradient(layers)]


def _is_document(file: ModelFile, shares: Collection[tuple[str, str]]) -> bool:
    """Return whether a network document can express that connections share their weights."""
    try:
        document, layers, _ = _translated(file, shares)
        spec = NetworkSpec.of({**document.network, "layers": layers})
        bind(spec, TrainingSpec(), _fields(file, layers))
    except (DocumentError, FitError):
        return False
    return True


def _without_gradient(layers: list[dict[str, Any]]) -> Iterator[str]:
    """Give outputs a loss that can be trained, and say so, whose own has no gradient in DSSTNE.

    Cross-entropy is DSSTNE's default, whatever the activation is, which a prediction does not need.
    """
    for layer in layers:
        loss, activation = layer.get("loss"), layer.get("activation")
        kind = loss["kind"] if isinstance(loss, dict) else loss
        if kind in CROSS_ENTROPIES and activation not in ("sigmoid", "softmax"):
            layer["loss"] = "l2"
            for key in ("values", "delta_boost"):
                layer.pop(key, None)
            yield f'The output "{layer["name"]}" gets the loss "l2"; DSSTNE cannot train it with its own.'


def _set_padding(file: ModelFile, layers: list[dict[str, Any]]) -> None:
    """Give every convolution and pooling layer its padding from the file."""
    names = _names_in_file(file, layers)
    for layer in layers:
        if "kernel" in layer:
            padding = file.paddings.get(names[layer["name"]])
            layer["padding"] = "dsstne" if padding is None else list(padding[::-1])


def _names_in_file(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, str]:
    """Return the file's name of each layer; an output and its source may be one layer of the file."""
    outputs = {_as_list(layer["source"])[0]: layer["name"] for layer in layers if layer.get("weightless")}
    names = {layer["name"]: layer["name"] for layer in layers}
    for source, output in outputs.items():
        if output in file.sides:
            names[source] = output
        else:
            names[output] = source
    return names


def _as_list(source: str | list[str]) -> list[str]:
    return source if isinstance(source, list) else [source]


def _fields(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, Width]:
    """Return width and kind of each field.

    The field of an input is sparse if its layer is; a field of outputs only is always sparse.
    """
    fields: dict[str, Width] = {}
    names = _names_in_file(file, layers)
    for layer in layers:
        if layer.get("kind") not in ("input", "output"):
            continue
        source = file.layer(names[layer["name"]])
        is_sparse = layer["kind"] == "output" or source["Sparse"]
        facts = Width(file.units(source["Name"]), "sparse" if is_sparse else "dense")
        other = fields.setdefault(layer["field"], facts)
        widths = f"{other.width:,} and {facts.width:,}"
        DataError.require(
            other.width == facts.width,
            f"layers of one data set must have the same number of units; got {widths}",
            place=f"{file.path}: {layer['field']!r}",
        )
        if layer["kind"] == "input":
            fields[layer["field"]] = facts
    return fields


def _weights(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, Numbers]:
    """Return every weight by its name in widenet's network, matrices as [units, inputs].

    The biases of several sources are added up.
    """
    weights: dict[str, Numbers] = {}
    names = _names_in_file(file, layers)
    for layer in layers:
        name, kind = layer["name"], layer.get("kind", "hidden")
        if layer.get("weightless"):
            weights[name] = np.zeros((file.units(names[name]), 0), np.float32)
            continue
        if kind in ("input", "pooling") or layer.get("source") == []:
            continue
        own = names[name]
        sources = file.layer(own).get("Source", [])
        DataError.require(sources, "must have a source; it has none", place=f"{file.path}: layer {own!r}")
        biases = [file.connections[source, own].bias for source in sources]
        weights[f"{name} bias"] = np.asarray(np.sum(biases, axis=0, dtype=np.float64), np.float32)
        for part, numbers in file.normalizations.get(name, {}).items():
            weights[f"{name} normalization {part}"] = numbers
        if kind == "output":
            weights[name] = np.concatenate([file.matrix(source, own) for source in sources], axis=1)
            continue
        for source, called in zip(sources, _as_list(layer["source"]), strict=True):
            is_full = kind == "hidden"
            weights[f"{name}/{called}"] = (
                file.matrix(source, own) if is_full else file.filters(source, own, layer["filters"])
            )
    return weights


def _names_of_features(
    fields: Mapping[str, Width], features: Mapping[str, Path | str] | Path | str | None
) -> dict[str, list[str]]:
    """Return the names in the index files, by field."""
    if features is None:
        return {}
    sparse = [name for name, facts in fields.items() if facts.kind == "sparse"]
    indexes = features if isinstance(features, Mapping) else dict.fromkeys(sparse, features)
    names = {}
    for name, index in indexes.items():
        OptionError.require(
            name in fields, f"must name fields; got {name!r}.{nearest(name, fields)}", option="features"
        )
        names[name], width = read_names(Path(index)), fields[name].width
        rule = f"must name at most the {width:,} units of field {name!r}"
        DataError.require(len(names[name]) <= width, rule, place=index, value=len(names[name]))
    return names
