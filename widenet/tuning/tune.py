"""Searching for good documents: `widenet.tune`."""

import math
from pathlib import Path

from widenet.arguments import with_fields_of
from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError, OptionError
from widenet.late_imports import optional
from widenet.parallel.launch import launcher_variable
from widenet.runs.documents import dataset_of, document
from widenet.tuning.results import StudyReport, StudyResult
from widenet.tuning.space import SpaceSpec, check_space
from widenet.tuning.study import Facts, Study
from widenet.tuning.tune_arguments import TuneArguments


@with_fields_of(TuneArguments, SpaceSpec, Dataset, StudyReport)
def tune(arguments: TuneArguments) -> StudyResult:
    """Search a space of documents for those with the best validation metric.

    Optuna suggests the documents of each trial. A trial that is not among the best at a rung stops there, by
    successive halving; the others train to the end. Further machines join with `resume`.

    Returns:
        The trials and the best of them.

    Raises:
        DocumentError, FitError, DataError, OptionError: The space, the dataset or an option does not allow
            the search, or is another one than that of a resumed study.
        CheckpointError: The study cannot be made or resumed.
        GroupError: All of several workers were lost.
    """
    with optional("optuna", "tune"):
        import optuna  # noqa: F401 before anything is made
    with optional("plotly", "tune"):
        import plotly  # noqa: F401
    is_alone = (launcher_variable("WORLD_SIZE") or "1") == "1"
    OptionError.require(is_alone, "trains each trial in one process", place="a study")
    dataset, out = dataset_of(arguments.data), Path(arguments.out)
    report = arguments.report or StudyReport()
    study = begun(arguments, dataset)
    from widenet.tuning.worker import run_workers, work  # loads torch

    try:
        if arguments.workers == 1:
            work(study, arguments.trials, dataset, report)
        else:
            run_workers(study, dataset.path, arguments.trials, arguments.workers, report)
    finally:
        with study.lock():
            study.write_best()  # here alone: a study that was killed has none until it is resumed
        study.write_report()
    result = study.results()
    FitError.require(result.trials, "leaves no documents that keep all rules", place=out, option="space")
    if result.best is None:
        raise FitError(f"holds failed trials alone. The first one: {result.trials[0].problem}", place=out)
    return result


def begun(arguments: TuneArguments, dataset: Dataset) -> Study:
    """Return a new study, or the one to resume."""
    space = document(SpaceSpec, arguments.space)
    path, reduction, fixed = Path(arguments.out), arguments.reduction, space.fixed_training
    is_valid = fixed.evaluation is not None and fixed.evaluation.part == "validation"
    place = f"{space.where}: training.evaluation"
    DocumentError.require(is_valid, "must name a metric on the validation part", place=place)
    if not arguments.resume:
        check_space(space, dataset)
    from widenet.parallel.group import device_for  # loads torch

    first = math.ceil(fixed.epochs / reduction ** (arguments.rungs - 1))
    rungs = [first * reduction**rung for rung in range(arguments.rungs)]
    facts = Facts(
        {"network": space.network, "training": space.training},
        dataset.digest,
        [*(rung for rung in rungs if rung < fixed.epochs), fixed.epochs],
        reduction,
        arguments.seed,
        device_for(arguments.device).type,
    )
    if arguments.resume:
        study = Study.open(path)
        study.check_same(facts)
        return study
    return Study.begin(path, facts)
