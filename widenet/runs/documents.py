"""What a training begins with, from its arguments: documents, paths, dataset, and the layout of these."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from widenet.data.dataset import Dataset
from widenet.data.manifest import Field
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.parallel.launch import launch_name
from widenet.plan.layout import Layout
from widenet.runs.run_arguments import TrainArguments
from widenet.spec.document import Document
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import (
    MOST_PAIRS,
    further_training,
    usual_network,
    usual_networks,
    usual_training,
)
from widenet.stores.folders import readable
from widenet.stores.runs import RunMirror
from widenet.stores.uri import Uri, is_uri
from widenet.training.check import check_training
from widenet.training.run_path import (
    CUT,
    FITTED,
    holds_work_of,
)

_Document = TypeVar("_Document", bound=Document)
_EXAMPLES = 2**20
"""Examples whose features are counted together."""


@contextmanager
def prepared(
    arguments: TrainArguments, say: Callable[[str], None] | None = None, cuts: bool = True
) -> Iterator[tuple[Layout, Dataset]]:
    """Open and check the dataset and the documents of a training.

    The default training document needs a validation part. If the dataset has none, the training gets a
    dataset with one, which is made of it. Every process of a group must call this.

    Args:
        arguments: The arguments of the training.
        say: Called in one process with what is set aside. Default: a warning.
        cuts: Whether to set a part aside; without, the rest is checked for the processes that will do it.

    Raises:
        DocumentError, DataError, FitError, OptionError: They do not go together.
        CheckpointError, DisagreementError, GroupError: The part cannot be set aside.
    """
    kept = run_of(arguments.out, resume=True)[0] if arguments.resume else None
    (path, mirror), launch = run_of(arguments.out, resume=False), launch_name()
    dataset = dataset_of(arguments.data)
    network = network_of(arguments.network, dataset, kept, start_of(arguments))
    with ExitStack() as stack:
        run = kept
        if launch and not arguments.overwrite and holds_work_of(path, mirror, launch):
            run = path  # torchrun may have restarted it, so that it resumes by itself
        if run is not None and (run / CUT).is_file():
            from widenet.runs.cutting import cut_again  # loads torch

            dataset = cut_again(arguments, dataset, run, mirror)
        field = _without_validation(arguments, network, dataset)
        if field is not None and cuts:
            from widenet.runs.cutting import cut_anew  # loads torch

            cut = cut_anew(arguments, path, mirror, field, dataset, say or warnings.warn)
            dataset = stack.enter_context(cut)
        if arguments.training is None and goes_on(arguments, network):
            training = further_training()
        else:
            evaluates = not arguments.no_validation
            training = training_of(arguments.training, network, dataset, kept, evaluates)
        yield check_training(network, training, dataset.path, dataset.manifest), dataset


def _without_validation(arguments: TrainArguments, network: NetworkSpec, dataset: Dataset) -> str | None:
    """The field of which a new training with the default document must set a part aside; None without one.

    One that starts with the weights of another run sets nothing aside: these may have been trained on it.
    """
    target = target_of(network, dataset)
    has_own = arguments.training is not None or arguments.no_validation
    if has_own or arguments.resume or arguments.start_from is not None or target is None:
        return None
    return None if target.kind == "dense" or "validation" in target.parts else target.name


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
    return spec, training_of(training, spec, dataset)


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
    evaluates: bool = True,
) -> TrainingSpec:
    """Return the training document of a training; raises as `documents`.

    Args:
        training: The document; None for that of the run, or else the default of the dataset.
        network: The network document.
        dataset: The dataset.
        kept: Directory of the run that the training resumes, if any.
        evaluates: Whether the default training evaluates on a validation part, if there is one.
    """
    if training is None and _holds_documents(kept):
        training = kept / "training.json"
    if training is not None:
        return document(TrainingSpec, training)
    target, mean_entries = target_of(network, dataset), None
    has_validation = target is not None and bool(target.num_entries.get("validation"))
    if target is not None and is_usual(network, dataset):
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
    file = start / (FITTED if (start / FITTED).is_file() else "network.json")
    values = NetworkSpec.read(file).unfitted().model_dump(mode="json", exclude_unset=True)
    for layer in values["layers"]:
        layer.pop("described_by", None)
    return NetworkSpec.of(values, str(file))


def _num_pairs(dataset: Dataset, field: str) -> int:
    """Return h (h - 1), summed over the training examples, for h entries of a field."""
    starts = range(0, dataset.num_examples, _EXAMPLES)
    lengths = (dataset.entry_counts(field, slice(start, start + _EXAMPLES)) for start in starts)
    return sum(int((each * (each - 1)).sum()) for each in lengths)


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
        return path if path.name else path.resolve(), None  # hidden folders beside it have its name
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
