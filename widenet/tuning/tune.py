"""Searching for good documents: `widenet.tune`."""

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
from widenet.tuning.reports import Silence, StudyReport
from widenet.tuning.results import StudyResult, results_of
from widenet.tuning.rungs import Rungs
from widenet.tuning.space import SpaceSpec, check_space, field_to_cut, with_metric
from widenet.tuning.study import Facts, Study
from widenet.tuning.tune_arguments import TuneArguments
from widenet.tuning.worker import work
from widenet.tuning.worker_processes import run_workers


@with_fields_of(TuneArguments, SpaceSpec, Dataset, StudyReport)
def tune(arguments: TuneArguments) -> StudyResult:
    """Search a space of documents for those with the best validation metric.

    Optuna suggests the documents of each trial. A trial stops at its first rung, with a checkpoint. Of the
    trials at a rung, the best go on from their checkpoints to the next one, and the last rung is the whole
    training. So each finished trial has the bits of an uninterrupted training of its documents.

    Returns:
        The trials and the best of them.

    Raises:
        DocumentError, FitError, DataError, OptionError: The space, the dataset or an option does not allow
            the search, or is another one than that of a resumed study.
        CheckpointError: The study cannot be made or resumed.
    """
    with optional("optuna", "tune"):
        import optuna  # noqa: F401 before anything is made
    if num_processes() > 1:
        raise OptionError(
            "`tune` trains each trial in one process. Start it without a launcher; use `workers`."
        )
    dataset, out = dataset_of(arguments.data), path_of("out", arguments.out)
    report = arguments.report or Silence()
    study, dataset = begun(arguments, dataset, report.say)
    with study.journal.alone():
        trials = study.journal.trials()
    if trials:
        report.resume({trial.number: trial.reached for trial in trials})
    if arguments.workers == 1:
        work(study, arguments.trials, dataset, report)
    else:
        run_workers(study, dataset.path, arguments.trials, arguments.workers, report)
    with study.journal.alone():
        result = results_of(study, study.journal.trials())
    if not result.trials:
        raise FitError(
            f"{out}: no trial could begin: the documents that were drawn break a rule. Narrow the space."
        )
    if result.best is None:
        raise FitError(f"{out}: all trials have failed. The first one: {result.trials[0].problem}")
    return result


def begun(arguments: TuneArguments, dataset: Dataset, say: Callable[[str], None]) -> tuple[Study, Dataset]:
    """Return a new study, or the one to resume, and the dataset of its trials.

    That is the dataset itself if it has a validation part. Otherwise the study sets one aside.
    """
    space = with_metric(document(SpaceSpec, arguments.space), arguments.metric)
    fixed, path = space.fixed_training, path_of("out", arguments.out)
    every = 1 if fixed.evaluation is None else fixed.evaluation.every_epochs
    rungs = Rungs.of(fixed.epochs, arguments.rungs, arguments.reduction, every)
    facts = Facts(
        {"network": space.network, "training": space.training},
        dataset.digest,
        list(rungs.epochs),
        rungs.reduction,
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
    if not cut.options:
        raise FitError(
            f"{dataset.path} has no validation part, by which trials are compared, and nobody has enough"
            f" {words.feature(field)}s for one. Search with more data."
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
