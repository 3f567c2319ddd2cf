"""Searching for good documents: `widenet.tune`."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from widenet.arguments import with_fields_of
from widenet.data.dataset import Dataset
from widenet.errors import FitError, OptionError
from widenet.late_imports import optional
from widenet.parallel.group import device_for, num_processes
from widenet.runs.cutting import Cut
from widenet.runs.documents import dataset_of, document, path_of
from widenet.training.run_path import DATA
from widenet.tuning.results import StudyReport, StudyResult
from widenet.tuning.space import SpaceSpec, check_space, field_to_cut, with_metric
from widenet.tuning.study import Facts, Study
from widenet.tuning.tune_arguments import TuneArguments
from widenet.tuning.worker import run_workers, work


@with_fields_of(TuneArguments, SpaceSpec, Dataset, StudyReport)
def tune(arguments: TuneArguments) -> StudyResult:
    """Search a space of documents for those with the best validation metric.

    Optuna suggests the documents of each trial. A trial that is not among the best at a rung stops there, by
    successive halving; the others train to the end.

    Returns:
        The trials and the best of them.

    Raises:
        DocumentError, FitError, DataError, OptionError: The space, the dataset or an option does not allow
            the search, or is another one than that of a resumed study.
        CheckpointError: The study cannot be made or resumed.
    """
    with optional("optuna", "tune"):
        import optuna  # noqa: F401 before anything is made
    with optional("plotly", "tune"):
        import plotly  # noqa: F401
    OptionError.require(num_processes() == 1, "trains each trial in one process", option="workers")
    dataset, out = dataset_of(arguments.data), path_of("out", arguments.out)
    report = arguments.report or StudyReport()
    study, dataset = begun(arguments, dataset, report.say)
    try:
        if arguments.workers == 1:
            work(study, arguments.trials, dataset, report)
        else:
            run_workers(study, dataset.path, arguments.trials, arguments.workers, report)
    finally:
        with study.lock():
            study.write_best()  # again: a kill may have come between the end of a trial and its documents
        study.write_report()
    result = study.results()
    FitError.require(result.trials, "leaves no documents that keep all rules", place=out, option="space")
    if result.best is None:
        raise FitError(f"holds failed trials alone. The first one: {result.trials[0].problem}", place=out)
    return result


def begun(arguments: TuneArguments, dataset: Dataset, say: Callable[[str], None]) -> tuple[Study, Dataset]:
    """Return a new study, or the one to resume, and the dataset of its trials.

    That is the dataset itself if it has a validation part. Otherwise the study sets one aside.
    """
    space = with_metric(document(SpaceSpec, arguments.space), arguments.metric)
    path, epochs, reduction = path_of("out", arguments.out), space.fixed_training.epochs, arguments.reduction
    first = math.ceil(epochs / reduction ** (arguments.rungs - 1))
    rungs = [first * reduction**rung for rung in range(arguments.rungs)]
    facts = Facts(
        {"network": space.network, "training": space.training},
        dataset.digest,
        [*(rung for rung in rungs if rung < epochs), epochs],
        reduction,
        arguments.seed,
        device_for(arguments.device).type,
    )
    if arguments.resume:
        study = Study.open(path)
        is_own = dataset.path.resolve() == (path / DATA).resolve()
        study.check_same(replace(facts, examples=study.facts.examples) if is_own else facts, dataset)
        return study, dataset if is_own else cut_again(path, dataset)
    field = field_to_cut(space, dataset)
    if field is None:
        check_space(space, dataset)
        return Study.begin(path, facts), dataset
    cut, words = Cut.of(dataset, field), dataset.manifest.words
    FitError.require(
        cut.options, "has no validation part, and nobody has enough for one", place=dataset.path, value=field
    )

    def make(folder: Path) -> None:
        cut.note(folder)
        cut.make(dataset, folder)
        check_space(space, Dataset.open(folder / DATA))

    study = Study.begin(path, facts, make)
    say(f"{cut.said(words)} set aside for validation, in {path / DATA}.")
    return study, Dataset.open(path / DATA)


def cut_again(path: Path, dataset: Dataset) -> Dataset:
    """Return the dataset of a study's trials; make it again if the study has set a part aside and lost it."""
    cut = Cut.read(path)
    if cut is None:
        return dataset
    cut.make(dataset, path)
    return Dataset.open(path / DATA)
