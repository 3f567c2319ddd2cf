"""What a caller gives for a document, a path or a dataset."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError, OptionError
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import usual_network, usual_training

_Document = TypeVar("_Document", bound=Document)


def document(kind: type[_Document], given: object) -> _Document:
    """A document of a kind, from itself, plain values or a path; raises DocumentError."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str | os.PathLike):
        return kind.read(os.fspath(given))
    if isinstance(given, Mapping):
        return kind.of(dict(given), kind.usual_name)
    raise DocumentError(
        f"{kind.usual_name} must be a document, plain values in a dictionary, or the path of a file; got"
        f" {given!r}."
    )


def documents(
    network: object, training: object, dataset: Dataset, kept: Path | None
) -> tuple[NetworkSpec, TrainingSpec]:
    """The two documents of a training, as they are given.

    In place of None stands that of the run that goes on, in the directory `kept`, or else the usual one for
    the dataset. Raises DocumentError, FitError.
    """
    if kept is not None and (kept / "network.json").is_file() and (kept / "training.json").is_file():
        network = kept / "network.json" if network is None else network
        training = kept / "training.json" if training is None else training
    network_spec = _usual_network(dataset) if network is None else document(NetworkSpec, network)
    if training is not None:
        return network_spec, document(TrainingSpec, training)
    asked = [dataset.field(layer.field) for layer in network_spec.outputs if layer.field in dataset.fields]
    return network_spec, usual_training(
        len(asked) == 1 and bool(asked[0].num_entries.get("validation")), dataset.num_examples
    )


def _usual_network(dataset: Dataset) -> NetworkSpec:
    able = [name for name, field in dataset.fields.items() if field.kind != "dense"]
    field = "items" if "items" in able else able[0] if len(able) == 1 else None
    if field is None:
        raise FitError(
            f'{dataset.path} has no field "items" for the usual network. Write a network.json, and name it.'
        )
    return usual_network(field, dataset.field(field).kind == "sequence")


def path_of(name: str, given: object) -> Path:
    """A path that an argument gives; raises OptionError."""
    if not isinstance(given, str | os.PathLike):
        raise OptionError(f"{name} must be a path; got {given!r}.")
    return Path(given)


def dataset_of(given: Dataset | str | Path) -> Dataset:
    """A dataset, from itself or its directory; raises DataError, OptionError."""
    return given if isinstance(given, Dataset) else Dataset.open(path_of("data", given))
