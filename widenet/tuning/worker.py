"""A worker takes a trial of a study, trains it to its end or until others are better, and takes another."""

import time
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING

from widenet.data.dataset import Dataset
from widenet.errors import CapacityError, DocumentError, FitError, NumericsError
from widenet.runs.run_arguments import TrainArguments
from widenet.runs.run_log import kept_line
from widenet.runs.training import run_training
from widenet.training.loop import interruption
from widenet.training.run_directory import RunDirectory
from widenet.tuning.results import StudyReport
from widenet.tuning.space import layout_of
from widenet.tuning.study import Study, quiet, suggested

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

_PAUSE_SECONDS = 0.5
"""Seconds between two looks at a study in which there is nothing to do until other workers are done."""
_OWN_PROBLEMS = (CapacityError, DocumentError, FitError, NumericsError)
"""Errors with which a trial fails alone."""


def work(study: Study, num_trials: int, dataset: Dataset, report: StudyReport) -> None:
    """Train trials of a study until it is over.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the trial that was trained has a checkpoint.
    """
    is_given_away = False

    def train(lock: IO[str], trial: "Trial") -> float:
        nonlocal is_given_away
        lock.close()
        report.begin(trial.user_attrs["run"])
        try:
            return _trained(study, trial, dataset, interrupted)
        finally:
            is_given_away = study.is_given_away(trial)

    def end(_: object, trial: "FrozenTrial") -> None:
        report.end(study.result(trial))

    with interruption(None) as interrupted, quiet():
        while not interrupted():
            with study.lock() as lock:
                has_trial = study.next_trial(num_trials, dataset)
                if has_trial:
                    try:
                        study.trials.optimize(
                            partial(train, lock), n_trials=1, catch=_OWN_PROBLEMS, callbacks=[end]
                        )
                    except ValueError:  # of Optuna, which is told the end of a trial that has ended
                        if not is_given_away:
                            raise
                        report.say("A worker was slow and counted as lost; its trial was given away.")
            if has_trial is None:
                return
            if not has_trial:
                time.sleep(_PAUSE_SECONDS)
        raise KeyboardInterrupt


def _trained(study: Study, trial: "Trial", dataset: Dataset, interrupted: Callable[[], bool]) -> float:
    """Train a trial, whose run may be begun, and return its metric.

    Raises:
        TrialPruned: Others were better at a rung.
        KeyboardInterrupt: It was interrupted, and is queued again.
        WidenetError: It cannot be trained.
    """
    from optuna import TrialPruned

    run, is_stopped = study.run(trial.user_attrs["run"]), False

    def value() -> float | None:
        records = [line for line in RunDirectory.open(run).records() if study.metric in line]
        return float(kept_line(layout.training, records)[study.metric]) if records else None

    def is_worse(_: object, epoch: int) -> bool:
        nonlocal is_stopped
        if (now := value()) is not None and epoch not in study.known(trial).intermediate_values:
            trial.report(now, epoch)
        is_stopped = epoch < study.facts.rungs[-1] and trial.should_prune()
        return is_stopped

    try:
        layout = layout_of(study.space, dataset, partial(suggested, trial))
        arguments = TrainArguments(
            None,
            None,
            dataset,
            run,
            resume=(run / "network.json").is_file(),
            device=study.facts.device,
            interrupted=interrupted,
            after_epoch=is_worse,
        )
        model = run_training(layout, dataset, arguments)
    except _OWN_PROBLEMS as error:
        trial.set_user_attr("problem", str(error))
        raise
    except KeyboardInterrupt:
        if is_stopped:
            raise TrialPruned from None
        if not study.is_given_away(trial):
            study.queue_again(trial)
        raise
    trial.set_user_attr("fingerprint", model.facts["fingerprint"])
    found = value()
    assert found is not None, "the last epoch is evaluated"
    return found
