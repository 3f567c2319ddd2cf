"""Cuts a validation part for the default training: in one process of a group, while the others wait."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from widenet.checkpoint import writing
from widenet.data.dataset import Dataset
from widenet.errors import DataError
from widenet.parallel.agreement import check_agreement
from widenet.parallel.group import by_leader, device_for, exchange_for, join, num_processes, of_all
from widenet.run_arguments import TrainArguments
from widenet.runs.arguments import run_of
from widenet.training.cut import Cut, beside
from widenet.training.existing_run import DATA
from widenet.training.in_common import SAME_MACHINES, facts_of_dataset
from widenet.training.replacing import check
from widenet.training.run_path import holds_data_alone, locked


@contextmanager
def cut_anew(
    arguments: TrainArguments, field: str, dataset: Dataset, say: Callable[[str], None]
) -> Iterator[Dataset]:
    """Give a dataset with a validation part, in a hidden folder beside the run, which takes it in.

    It is the dataset itself if nobody has enough entries. What has not become part of a run by the end of the
    block is removed.

    Raises:
        CheckpointError, DataError: The run cannot begin, or cannot take the dataset in.
        DisagreementError, GroupError: The processes of the group disagree, or one is lost.
    """
    path, mirror = run_of(arguments.out, resume=False)
    cut, words = Cut.of(dataset, field), dataset.manifest.words

    def make() -> None:
        if cut.options and holds_data_alone(path):
            options = ", ".join(f"{name}={value!r}" for name, value in cut.options.items())
            raise DataError(
                f"{path} holds a dataset already, so that the training cannot put one with a validation part"
                " there. Choose another `out`, set the part aside with"
                f" `widenet.split({str(dataset.path)!r}, out=DIR, {options})`, or add `no_validation=True`."
            )
        if mirror is None:
            check(path, [dataset.path], arguments.overwrite)
        if cut.options:
            cut.make(dataset, stack.enter_context(making(path, cut)))
            sentence = f"{cut.said(words)} set aside for validation, in {path / DATA}."
        else:
            sentence = (
                f"Nobody has enough {words.feature(field)}s for a validation part: training keeps the last"
                " epoch's weights."
            )
        say(sentence)

    with ExitStack() as stack:
        yield _made(arguments, dataset, cut, beside(path), make)


@contextmanager
def making(path: Path, cut: Cut) -> Iterator[Path]:
    """Give the hidden folder in which the dataset of a run is made, locked, with a note on how it is cut.

    What the run has not taken in by the end of the block is removed.

    Raises:
        CheckpointError: Another process makes the dataset of this run, or the folder cannot be written.
    """
    folder = beside(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, path) as is_there:
        try:
            with writing(folder):
                if (folder / DATA).exists():  # of a killed process
                    shutil.rmtree(folder / DATA)
            cut.note(folder)
            yield folder
        finally:
            if is_there():
                shutil.rmtree(folder, ignore_errors=True)


def cut_again(arguments: TrainArguments, dataset: Dataset, run: Path) -> Dataset:
    """Return the dataset that a begun run was cut from a dataset; make it again if the run has it no more.

    It is the dataset itself if the run was not cut from it.

    Raises:
        CheckpointError, DataError: The run is damaged, or cannot be written.
        DisagreementError, GroupError: The processes of the group disagree, or one is lost.
    """
    cut = Cut.read(run)
    if cut is None or cut.examples != dataset.digest:
        return dataset
    return _made(arguments, dataset, cut, run, lambda: cut.make(dataset, run))


def _made(
    arguments: TrainArguments, dataset: Dataset, cut: Cut, folder: Path, make: Callable[[], None]
) -> Dataset:
    """Let one process of the group make a dataset in a folder, and open it in all."""
    device = device_for(arguments.device)
    join(device, arguments.timeout)
    exchange = exchange_for(num_processes(), device)
    facts = {**facts_of_dataset(dataset), "validation part": f"{cut.share} of {cut.field}"}
    check_agreement(exchange, facts, SAME_MACHINES)
    by_leader(exchange, make, "validation part")
    is_whole = cut.share == 0
    return dataset if is_whole else of_all(exchange, lambda: Dataset.open(folder / DATA), "validation part")
