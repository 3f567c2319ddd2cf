"""DSSTNE's trained networks, made into runs that predict at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.rules import FieldLayout
from widenet.data.silence import ignore_message
from widenet.data.writer import vocabulary_rows, write_dataset
from widenet.dsstne.index_file import read_names
from widenet.dsstne.model_file import ModelFile, Numbers, read_model
from widenet.dsstne.spec.network import translation
from widenet.errors import DataError, OptionError, did_you_mean
from widenet.interop.imported import Imported, write_run
from widenet.plan.layout import Width
from widenet.runs import Model
from widenet.spec.training import TrainingSpec

_TRAINING = {
    "epochs": 40,
    "batch_size": 1024,
    "optimizer": {"kind": "sgd", "learning_rate": 0.025},
    "l2": 0.0001,
}
"""What DSSTNE's `train` does unless it is told."""


def import_model(
    source: Path | str,
    out: Path | str,
    *,
    data: Dataset | Path | str | None = None,
    features: Mapping[str, Path | str] | Path | str | None = None,
    fields: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Model:
    """The run of a network that DSSTNE trained: it predicts at once, and trainings may begin with its
    weights.

    A data set of the network is a field of its name. Padding of layers stays, and is never recommended where
    names are fewer.
    data: a dataset with these fields, whose features the network knows. features: or else the index file of
    every sparse field, or those of some by name. Without either a feature is named by its index. fields:
    other names for the network's, by its own.
    say: told of what was left out, or is not what it seems. The documents keep DSSTNE's meaning.
    Weights that a layer shares where this project cannot share them are copied, so that a further
    training moves each by itself. Raises DataError, DocumentError, FitError, CheckpointError, OptionError;
    nothing is then left.
    """
    if data is not None and features is not None:
        raise OptionError(
            "`data` and `features` cannot go together: the dataset names its features. Leave one out."
        )
    tell = say or ignore_message
    file = read_model(Path(source))
    copied = {
        key
        for key, connection in file.connections.items()
        if connection.shared is not None and not _is_sharable(file, *key)
    }
    _say_shared(file, copied)
    found = translation(file.network, str(source))
    layers = found.network.pop("layers")
    _pad(file, layers)
    for note in found.notes:
        tell(note)
    imported = Imported(
        name=str(source),
        layers=layers,
        fields=_fields(file, layers),
        weights=_weights(file, layers),
        training=TrainingSpec.of(_TRAINING | found.training, str(source)),
        settings=found.network,
    ).with_fields(fields or {})
    with TemporaryDirectory() as folder:
        if data is None:
            dataset = _described(Path(folder) / "data", imported.fields, features)
        else:
            dataset = data if isinstance(data, Dataset) else Dataset.open(data)
        known = {
            name: Width(dataset.fields[name].width, facts.kind) if name in dataset.fields else facts
            for name, facts in imported.fields.items()
        }
        imported.fields = known
        return write_run(imported, Path(out), dataset)


def _pad(file: ModelFile, layers: list[dict[str, Any]]) -> None:
    """Give every convolution and pooling layer the padding that the file has for it."""
    own = _of_file(file, layers)
    for layer in layers:
        if "kernel" in layer:
            padding = file.paddings.get(own[layer["name"]])
            layer["padding"] = "dsstne" if padding is None else list(padding[::-1])


def _of_file(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, str]:
    """What the layers of a document are in the file: an output and what it takes may be one layer there."""
    takers = {_named(layer["source"])[0]: layer["name"] for layer in layers if layer.get("weightless")}
    found = {layer["name"]: layer["name"] for layer in layers}
    for source, taker in takers.items():
        if taker in file.sides:
            found[source] = taker
        else:
            found[taker] = source
    return found


def _named(source: str | list[str]) -> list[str]:
    return source if isinstance(source, list) else [source]


def _is_sharable(file: ModelFile, source: str, name: str) -> bool:
    """Whether a network document can say that a layer shares the weights of a connection."""
    connection = file.connections[source, name]
    assert connection.shared is not None
    borrows = any(
        each.shared is not None for (_, end), each in file.connections.items() if end == connection.shared[1]
    )
    sources = [
        len(file.layer(end).get("Source", []))
        for end in (name, connection.shared[1])
        if file.layer(end)["Kind"] == "Output"
    ]
    parted = any(_is_parted(file, file.layer(end)) for end in (name, connection.shared[1]))
    if borrows or parted or not _is_used(file, connection.shared[1]) or any(count > 1 for count in sources):
        return False
    ends = [_is_wide(file, source, name), _is_wide(file, *connection.shared)]
    kinds = [file.layer(end)["Kind"] == "Output" for end in (name, connection.shared[1])]
    turns = kinds[0] != kinds[1]
    return ends[0] == ends[1] and (not ends[0] or turns == connection.transposed)


def _is_used(file: ModelFile, name: str) -> bool:
    """Whether a layer feeds an output, or is one."""
    used = {layer["Name"] for layer in file.network["Layers"] if layer["Kind"] == "Output"}
    before = 0
    while len(used) > before:
        before = len(used)
        used.update(
            *(
                (*layer.get("Source", []), *layer.get("Skip", []))
                for layer in file.network["Layers"]
                if layer["Name"] in used
            )
        )
    return name in used


def _is_parted(file: ModelFile, layer: Mapping[str, Any]) -> bool:
    """Whether a layer of the file is an output that takes, as it is, what another gives here."""
    feeds = any(
        layer["Name"] in (*other.get("Source", []), *other.get("Skip", []))
        for other in file.network["Layers"]
    )
    return bool(layer["Kind"] == "Output" and (layer["Type"] != "FullyConnected" or layer["Skip"] or feeds))


def _is_wide(file: ModelFile, source: str, name: str) -> bool:
    """Whether this project cuts the weights of a connection into shards."""
    start, end = file.layer(source), file.layer(name)
    return bool(end["Kind"] == "Output" or (start["Kind"] == "Input" and start["Sparse"]))


def _say_shared(file: ModelFile, copied: set[tuple[str, str]]) -> None:
    """Say of the layers whose weights they share, as the JSON does, but for connections that are copied."""
    for (source, name), connection in file.connections.items():
        if connection.shared is not None and (source, name) not in copied:
            ends = {
                "InputLayer": source,
                "SourceInputLayer": connection.shared[0],
                "SourceOutputLayer": connection.shared[1],
            }
            file.layer(name).setdefault("SharedWeights", []).append(
                ends | {"Transposed": connection.transposed}
            )


def _fields(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, Width]:
    """What the inputs and outputs are: an input's data is as sparse as its layer says, an output's counts
    as sparse.
    """
    found: dict[str, Width] = {}
    own = _of_file(file, layers)
    for layer in layers:
        if layer.get("kind") not in ("input", "output"):
            continue
        source = file.layer(own[layer["name"]])
        is_sparse = layer["kind"] == "output" or source["Sparse"]
        facts = Width(file.units(source["Name"]), "sparse" if is_sparse else "dense")
        other = found.setdefault(layer["field"], facts)
        if other.width != facts.width:
            widths = f"{other.width:,} and {facts.width:,}"
            raise DataError(
                f"{file.path}: layers of one data set must have as many units; those of {layer['field']!r}"
                f" have {widths}."
            )
        if layer["kind"] == "input":
            found[layer["field"]] = facts
    return found


def _weights(file: ModelFile, layers: list[dict[str, Any]]) -> dict[str, Numbers]:
    """Every weight by its name in a network of this project: matrices [units, inputs]; biases of several
    sources are added up.
    """
    found: dict[str, Numbers] = {}
    names = _of_file(file, layers)
    for layer in layers:
        name, kind = layer["name"], layer.get("kind", "hidden")
        if layer.get("weightless"):
            found[name] = np.zeros((file.units(names[name]), 0), np.float32)
            continue
        if kind in ("input", "pooling") or layer.get("source") == []:
            continue
        own = names[name]
        sources = file.layer(own).get("Source", [])
        if not sources:
            raise DataError(
                f"{file.path}: layer {own!r} must have a source; it has none. Write the file again."
            )
        biases = [file.connections[source, own].bias for source in sources]
        found[f"{name} bias"] = np.asarray(np.sum(biases, axis=0, dtype=np.float64), np.float32)
        for part, numbers in file.normalizations.get(name, {}).items():
            found[f"{name} normalization {part}"] = numbers
        if kind == "output":
            found[name] = np.concatenate([file.matrix(source, own) for source in sources], axis=1)
            continue
        for source, called in zip(sources, _named(layer["source"]), strict=True):
            is_full = kind == "hidden"
            found[f"{name}/{called}"] = (
                file.matrix(source, own) if is_full else file.filters(source, own, layer["filters"])
            )
    return found


def _described(
    path: Path, fields: Mapping[str, Width], features: Mapping[str, Path | str] | Path | str | None
) -> Dataset:
    """A dataset without examples, whose features have the names of index files, or their indices."""
    named = (
        features
        if isinstance(features, Mapping)
        else {name: features for name, facts in fields.items() if facts.kind == "sparse"}
    )
    for name in named:
        if name not in fields:
            raise OptionError(f"`features` must name fields; got {name!r}.{did_you_mean(name, fields)}")
    layouts, vocabularies = [], {}
    for name, facts in fields.items():
        index = named.get(name)
        names = None if index is None else read_names(Path(index))
        if names is not None and len(names) > facts.width:
            raise DataError(
                f"{index}: must name at most the {facts.width:,} units of field {name!r}; got {len(names):,}."
                " Use its own file."
            )
        width = facts.width if names is None else len(names)
        layouts.append(FieldLayout(name, width, kind="sparse" if facts.kind == "sparse" else "dense"))
        if facts.kind == "sparse":
            vocabularies[name] = vocabulary_rows(width, names)
    write_dataset(path, layouts=layouts, batches=[], vocabularies=vocabularies)
    return Dataset.open(path)
