"""Conversion of arguments: documents, paths and datasets."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from widenet.data.dataset import Dataset
from widenet.data.manifest import Field
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.runs.run_arguments import TrainArguments
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import MOST_PAIRS, usual_network, usual_networks, usual_training
from widenet.stores.fetch import readable
from widenet.stores.runs import RunMirror
from widenet.stores.uri import Uri, is_uri
from widenet.training.existing_run import document_of

_Document = TypeVar("_Document", bound=Document)
_EXAMPLES = 2**20
"""Examples whose features are counted together."""


def document(kind: type[_Document], value: object) -> _Document:
    """Return a document from itself, plain values or a path; raises DocumentError."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str | os.PathLike):
        return kind.read(os.fspath(value))
    if isinstance(value, Mapping):
        return kind.of(dict(value), kind.usual_name)
    raise DocumentError(
        "must be a document, plain values in a dictionary, or the path of a file",
        place=kind.usual_name,
        value=value,
    )


def documents(network: object, training: object, dataset: Dataset) -> tuple[NetworkSpec, TrainingSpec]:
    """Return the two documents of a new training; None stands for a default.

    Raises:
        DocumentError: A document is invalid.
        FitError: There is no default for the dataset.
    """
    spec = network_of(network, dataset)
    return spec, training_of(training, spec, dataset, is_default_network=is_usual(spec, dataset))


def network_of(
    network: object, dataset: Dataset, kept: Path | None = None, start: Path | None = None
) -> NetworkSpec:
    """Return the network document of a training; raises as `documents`.

    Args:
        network: The document; None for that of the run, or of the run whose weights it begins with, or else
            the default of the dataset.
        dataset: The dataset.
        kept: Directory of the run that the training resumes, if any.
        start: Directory of the run whose weights the training begins with, if any.
    """
    if network is None and _holds_documents(kept):
        network = kept / "network.json"
    elif network is None and _holds_documents(start):
        return _continued(start)
    return _default_network(dataset) if network is None else document(NetworkSpec, network)


def training_of(
    training: object,
    network: NetworkSpec,
    dataset: Dataset,
    kept: Path | None = None,
    is_default_network: bool = False,
    evaluates: bool = True,
) -> TrainingSpec:
    """Return the training document of a training; raises as `documents`.

    Args:
        training: The document; None for that of the run, or else the default of the dataset.
        network: The network document.
        dataset: The dataset.
        kept: Directory of the run that the training resumes, if any.
        is_default_network: Whether the network is the default of the dataset; see `is_usual`.
        evaluates: Whether the default training evaluates on a validation part, if there is one.
    """
    if training is None and _holds_documents(kept):
        training = kept / "training.json"
    if training is not None:
        return document(TrainingSpec, training)
    target, mean_entries = target_of(network, dataset), None
    has_validation = target is not None and bool(target.num_entries.get("validation"))
    if is_default_network and target is not None:
        mean_entries = target.num_entries["train"] / target.width
    is_sequence = target is not None and target.kind == "sequence"
    return usual_training(has_validation and evaluates, dataset.num_examples, mean_entries, is_sequence)


def goes_on(arguments: TrainArguments, network: NetworkSpec) -> bool:
    """Return whether a new training goes on with the network of the run whose weights it begins with.

    Args:
        arguments: The arguments of the training.
        network: Its network document.
    """
    start = None if arguments.resume else start_of(arguments)
    if start is None or arguments.network is None:
        return start is not None
    return _holds_documents(start) and _essence(network) == _essence(NetworkSpec.read(start / "network.json"))


def is_usual(network: NetworkSpec, dataset: Dataset) -> bool:
    """Return whether a network is the default of a dataset, with whatever terms and descriptions.

    It may be the default for another number of features: so it stays one when the dataset grows.
    """
    try:
        field = _default_field(dataset)
    except FitError:
        return False
    usual = usual_networks(field, dataset.field(field).kind == "sequence")
    return _essence(network) in map(_essence, usual)


def _essence(network: NetworkSpec) -> dict[str, Any]:
    return network.model_dump(mode="json", exclude={"layers": {"__all__": {"neighbourhood", "described_by"}}})


def target_of(network: NetworkSpec, dataset: Dataset) -> Field | None:
    """Return the field that the only output of a network predicts; None if there are several outputs."""
    targets = [dataset.field(layer.field) for layer in network.outputs if layer.field in dataset.fields]
    return targets[0] if len(targets) == 1 else None


def _holds_documents(run: Path | None) -> TypeGuard[Path]:
    return run is not None and (run / "network.json").is_file() and (run / "training.json").is_file()


def _default_field(dataset: Dataset) -> str:
    """Return the field of the default network; raises FitError if the dataset has none for it."""
    able = [name for name, field in dataset.fields.items() if field.kind != "dense"]
    field = "items" if "items" in able else able[0] if len(able) == 1 else None
    if field is None:
        raise FitError('has no field "items" for the usual network', place=dataset.path)
    return field


def _default_network(dataset: Dataset) -> NetworkSpec:
    field = _default_field(dataset)
    known = dataset.field(field)
    has_term = _num_pairs(dataset, field) <= MOST_PAIRS
    return usual_network(field, known.kind == "sequence", known.width, sorted(known.described), has_term)


def _continued(start: Path) -> NetworkSpec:
    """Return the network of a run with which a training goes on: it describes and fits nothing anew."""
    file = document_of(start)
    values = NetworkSpec.read(file).unfitted().model_dump(mode="json", exclude_unset=True)
    for layer in values["layers"]:
        layer.pop("described_by", None)
    return NetworkSpec.of(values, str(file))


def _num_pairs(dataset: Dataset, field: str) -> int:
    """Return h (h - 1), summed over the training examples, for h entries of a field."""
    starts = range(0, dataset.num_examples, _EXAMPLES)
    lengths = (dataset.entry_counts(field, slice(start, start + _EXAMPLES)) for start in starts)
    return sum(int((each * (each - 1)).sum()) for each in lengths)


def kept_of(arguments: TrainArguments) -> Path | None:
    """Return the directory of the run that a training resumes, if any; raises as `run_of`."""
    return run_of(arguments.out, resume=True)[0] if arguments.resume else None


def start_of(arguments: TrainArguments) -> Path | None:
    """The run whose weights a training begins with; raises OptionError for something else than a path."""
    if arguments.start_from is None:
        return None
    return readable(path_of("start_from", arguments.start_from), "run", whole=True)


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
    try:
        is_there = not resume or mirror.restore()
    except OSError as error:
        rule = f"cannot hold a copy of {mirror.bucket.uri}: {error.strerror or error}"
        raise CheckpointError(rule, place=mirror.path) from None
    if not is_there:
        raise CheckpointError("holds no run to resume", place=mirror.bucket.uri)
    return mirror.path, mirror


def path_of(name: str, value: object) -> Path:
    """Return the path of an argument; raises OptionError if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise OptionError("must be a path", option=name, value=value)
    return Path(value)


def dataset_of(value: Dataset | str | Path) -> Dataset:
    """Return a dataset from itself or its directory; raises DataError, OptionError."""
    return value if isinstance(value, Dataset) else Dataset.open(path_of("data", value))
