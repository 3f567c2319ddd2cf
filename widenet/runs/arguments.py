"""Conversion of arguments: documents, paths and datasets."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.run_arguments import TrainArguments
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import usual_network, usual_training
from widenet.stores.runs import RunMirror
from widenet.stores.uri import Uri, is_uri

_Document = TypeVar("_Document", bound=Document)


def document(kind: type[_Document], value: object) -> _Document:
    """Return a document from itself, plain values or a path; raises DocumentError."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str | os.PathLike):
        return kind.read(os.fspath(value))
    if isinstance(value, Mapping):
        return kind.of(dict(value), kind.usual_name)
    raise DocumentError(
        f"{kind.usual_name} must be a document, plain values in a dictionary, or the path of a file; got"
        f" {value!r}."
    )


def documents(
    network: object, training: object, dataset: Dataset, kept: Path | None, is_fresh: bool = True
) -> tuple[NetworkSpec, TrainingSpec]:
    """Return the two documents of a training.

    Args:
        network: The network document; None for that of the run, or else the default of the dataset.
        training: The training document; None likewise.
        dataset: The dataset.
        kept: Directory of the run that the training resumes, if any.
        is_fresh: Whether the weights do not come from another run.

    Raises:
        DocumentError: A document is invalid.
        FitError: There is no default for the dataset.
    """
    if kept is not None and (kept / "network.json").is_file() and (kept / "training.json").is_file():
        network = kept / "network.json" if network is None else network
        training = kept / "training.json" if training is None else training
    is_default = network is None
    network_spec = _default_network(dataset, is_fresh) if is_default else document(NetworkSpec, network)
    if training is not None:
        return network_spec, document(TrainingSpec, training)
    targets = [dataset.field(layer.field) for layer in network_spec.outputs if layer.field in dataset.fields]
    has_validation = len(targets) == 1 and bool(targets[0].num_entries.get("validation"))
    mean_entries = None
    if is_default and targets[0].kind == "sparse":
        mean_entries = targets[0].num_entries["train"] / targets[0].width
    return network_spec, usual_training(has_validation, dataset.num_examples, mean_entries)


def _default_network(dataset: Dataset, is_fresh: bool) -> NetworkSpec:
    """Return the default network; only a fresh training can describe items, see `start_from`."""
    able = [name for name, field in dataset.fields.items() if field.kind != "dense"]
    field = "items" if "items" in able else able[0] if len(able) == 1 else None
    if field is None:
        raise FitError(
            f'{dataset.path} has no field "items" for the usual network. Write a network.json, and name it.'
        )
    known = dataset.field(field)
    described = sorted(known.described) if is_fresh else []
    return usual_network(field, known.kind == "sequence", known.width, described)


def kept_of(arguments: TrainArguments) -> Path | None:
    """Return the directory of the run that a training resumes, if any; raises as `run_of`."""
    return run_of(arguments.out, resume=True)[0] if arguments.resume else None


def run_of(value: object, resume: bool) -> tuple[Path, RunMirror | None]:
    """Return the directory in which a run is trained, and its mirror if `value` is a URI.

    Args:
        value: The argument `out`.
        resume: Whether to bring the directory to the state of the store first.

    Raises:
        OptionError: It is neither a path nor a URI.
        CheckpointError, StoreError: The run cannot be resumed from the store.
    """
    path = path_of("out", value)
    if not is_uri(path):
        return path, None
    mirror = RunMirror(Uri.of(path))
    if resume:
        mirror.restore()
        if not mirror.path.exists():
            raise CheckpointError(
                f"{mirror.bucket.uri} holds no run to resume. Leave `resume` out to begin one."
            )
    return mirror.path, mirror


def path_of(name: str, value: object) -> Path:
    """Return the path of an argument; raises OptionError if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"{name} must be a path; got {value!r}.")
    return Path(value)


def dataset_of(value: Dataset | str | Path) -> Dataset:
    """Return a dataset from itself or its directory; raises DataError, OptionError."""
    return value if isinstance(value, Dataset) else Dataset.open(path_of("data", value))
