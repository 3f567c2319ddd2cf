"""Cuts a validation part for the default training: in one process of a group, while the others wait."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import DataError
from widenet.parallel.agreement import check_agreement
from widenet.parallel.group import (
    by_all,
    by_some,
    device_for,
    exchange_for,
    is_leader,
    join,
    num_processes,
)
from widenet.runs.documents import run_of
from widenet.runs.machines import meet
from widenet.runs.run_arguments import TrainArguments
from widenet.stores.runs import RunMirror
from widenet.training.cut import Cut
from widenet.training.existing_run import DATA
from widenet.training.in_common import facts_of_dataset
from widenet.training.publication import leads_folder
from widenet.training.replacing import check
from widenet.training.run_path import beside, hidden, holds_data_alone


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
            raise DataError("holds a dataset, so that it cannot take one with a validation part", place=path)
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
        if is_leader():
            say(sentence)

    with ExitStack() as stack:
        yield _made(arguments, dataset, cut, beside(path), make, mirror)


@contextmanager
def making(path: Path, cut: Cut) -> Iterator[Path]:
    """Give the folder of `hidden` for the dataset of a run, with a note on how it is cut."""
    with hidden(path) as folder:
        cut.note(folder)
        yield folder


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
    _, mirror = run_of(arguments.out, resume=False)
    return _made(arguments, dataset, cut, run, lambda: cut.make(dataset, run), mirror)


def _made(
    arguments: TrainArguments,
    dataset: Dataset,
    cut: Cut,
    folder: Path,
    make: Callable[[], None],
    mirror: RunMirror | None,
) -> Dataset:
    """Let one process of those that share a folder make a dataset in it, and open it in all."""
    device = device_for(arguments.device)
    join(device, arguments.timeout)
    exchange = exchange_for(num_processes(), device)
    facts = {**facts_of_dataset(dataset), "validation part": f"{cut.share} of {cut.field}"}
    check_agreement(exchange, facts)
    if mirror is not None:
        meet(mirror, exchange)
    by_some(exchange, leads_folder(exchange, mirror), make, "validation part")
    is_whole = cut.share == 0
    return dataset if is_whole else by_all(exchange, lambda: Dataset.open(folder / DATA), "validation part")
