"""What a training begins with: its documents, its dataset, and the layout that binds them."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.parallel.launch import launch_id
from widenet.plan.layout import Layout
from widenet.runs.documents import (
    dataset_of,
    goes_on,
    is_usual,
    kept_of,
    network_of,
    run_of,
    start_of,
    target_of,
    training_of,
)
from widenet.runs.run_arguments import TrainArguments
from widenet.spec.network import NetworkSpec
from widenet.spec.usual import further_training
from widenet.training.check import check_training
from widenet.training.existing_run import CUT


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
    dataset, kept = dataset_of(arguments.data), kept_of(arguments)
    network = network_of(arguments.network, dataset, kept, start_of(arguments))
    with ExitStack() as stack:
        run = kept or _restarted(arguments)
        if run is not None and (run / CUT).is_file():
            from widenet.runs.cutting import cut_again

            dataset = cut_again(arguments, dataset, run)
        field = _without_validation(arguments, network, dataset)
        if field is not None and cuts:
            from widenet.runs.cutting import cut_anew

            dataset = stack.enter_context(cut_anew(arguments, field, dataset, say or warnings.warn))
        if arguments.training is None and goes_on(arguments, network):
            training = further_training()
        else:
            is_default = arguments.training is None and is_usual(network, dataset)
            evaluates = not arguments.no_validation
            training = training_of(arguments.training, network, dataset, kept, is_default, evaluates)
        yield check_training(network, training, dataset), dataset


def _restarted(arguments: TrainArguments) -> Path | None:
    """The run that torchrun may have restarted, so that it resumes by itself; None for all others."""
    launch = launch_id()
    if not launch or arguments.overwrite:
        return None
    from widenet.training.run_path import holds_work_of

    run, mirror = run_of(arguments.out, resume=False)
    return run if holds_work_of(run, mirror, launch) else None


def _without_validation(arguments: TrainArguments, network: NetworkSpec, dataset: Dataset) -> str | None:
    """The field of which a new training with the default document must set a part aside; None without one.

    One that starts with the weights of another run sets nothing aside: these may have been trained on it.
    """
    target = target_of(network, dataset)
    has_own = arguments.training is not None or arguments.no_validation
    if has_own or arguments.resume or arguments.start_from is not None or target is None:
        return None
    return None if target.kind == "dense" or "validation" in target.parts else target.name
