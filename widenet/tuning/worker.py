"""A worker: takes a trial of a study, trains it to its rung, writes its metric, and takes the next one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.errors import CapacityError, CheckpointError, DocumentError, FitError, NumericsError
from widenet.plan.layout import Layout
from widenet.runs.run_arguments import TrainArguments
from widenet.runs.run_log import kept_line
from widenet.runs.training import run_training
from widenet.training.loop import interruption
from widenet.training.run_directory import RunDirectory, TrainingFacts
from widenet.training.state import Report
from widenet.tuning.reports import StudyReport
from widenet.tuning.rungs import Trial
from widenet.tuning.study import Study
from widenet.tuning.study_page import write_results

_PAUSE_SECONDS = 0.2
"""Seconds between two looks at a study in which there is nothing to do until other workers are done."""


@dataclass(frozen=True)
class _Stop:
    """Where a trial has stopped: its finished epochs and its metric, its fingerprint if that is its end."""

    epochs: int
    value: float
    fingerprint: str | None


def work(study: Study, num_trials: int, dataset: Dataset, report: StudyReport) -> None:
    """Train trials of a study until it is over.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM; the trial that was trained has a checkpoint.
    """
    said: set[str] = set()
    with interruption(None) as interrupted:
        while not interrupted():
            with study.journal.alone():
                taken = study.next_trial(num_trials, dataset)
                is_over = taken is None and study.is_over()
            if is_over:
                return
            if taken is None:
                time.sleep(_PAUSE_SECONDS)
                continue
            trial, claim = taken
            with claim:
                following = _OfTrial(trial.number, report, said)
                stop = _trained(study, trial, dataset, following, interrupted)
                with study.journal.alone():
                    _record(study, trial, stop)
                    claim.close()  # here, so that whoever promotes the trial next can claim it
            if isinstance(stop, str):
                report.fail(trial.number, stop)
            elif stop is not None:
                report.reach(trial.number, stop.epochs, stop.value)
        raise KeyboardInterrupt


def _record(study: Study, trial: Trial, stop: _Stop | str | None) -> None:
    """Write into the journal where a trial has stopped, why it failed, or that it was interrupted."""
    if stop is None:
        study.journal.note(trial, starts=trial.starts)
    elif isinstance(stop, str):
        study.journal.fail(trial, stop)
    else:
        study.reach(trial, stop.epochs, stop.value, stop.fingerprint)
    write_results(study)


def _trained(
    study: Study, trial: Trial, dataset: Dataset, report: "_OfTrial", interrupted: Callable[[], bool]
) -> _Stop | str | None:
    """Train a trial to its rung.

    Returns:
        Where it has stopped, a sentence why it cannot be trained, or None after an interruption.
    """
    try:
        layout = study.layout(trial, dataset)
    except (DocumentError, FitError) as error:
        return str(error)
    run, rung, end = study.run(trial), study.rungs.epochs[trial.target], study.rungs.epochs[-1]
    start = _finished_epochs(run)
    report.report.begin(trial.number, start, rung)
    fingerprint = None
    if start < rung or rung == end:
        try:
            fingerprint = _trained_to(rung, run, layout, dataset, study.facts.device, report, interrupted)
        except (CapacityError, NumericsError) as error:
            return str(error)
        except KeyboardInterrupt:
            if _finished_epochs(run) < rung:
                if interrupted():
                    return None
                raise
    epochs = rung if fingerprint is None else end
    kept = kept_line(layout.training, RunDirectory.open(run).records()[:epochs])
    return _Stop(epochs, float(kept[study.metric]), fingerprint)


def _trained_to(
    rung: int,
    run: Path,
    layout: Layout,
    dataset: Dataset,
    device: str,
    report: Report,
    interrupted: Callable[[], bool],
) -> str | None:
    """Train a run until it has finished the epochs of a rung; return its fingerprint if it has ended.

    Raises:
        KeyboardInterrupt: It has not ended: it stands at the rung, or was interrupted before.
    """
    arguments = TrainArguments(
        None,
        None,
        dataset,
        run,
        resume=(run / "network.json").is_file(),
        device=device,
        report=report,
        interrupted=interrupted,
        after_epoch=lambda _, epoch: epoch >= rung,
    )
    return str(run_training(layout, dataset, arguments).facts["fingerprint"])


def _finished_epochs(run: Path) -> int:
    """Return the finished epochs in the newest checkpoint of a run; 0 if there is none that is whole."""
    try:
        checkpoint = RunDirectory.open(run).latest()
    except CheckpointError:
        return 0
    return 0 if checkpoint is None else TrainingFacts.of(checkpoint.facts).state.epoch


class _OfTrial(Report):
    """Hands the report of a training to that of the study.

    Attributes:
        trial: Number of the trial.
        report: The report of the study.
        said: What was said of earlier trials, which is not said again.
    """

    def __init__(self, trial: int, report: StudyReport, said: set[str]) -> None:
        self.trial, self.report, self.said = trial, report, said

    def epoch(self, record: dict[str, Any]) -> None:
        """See `Report.epoch`."""
        self.report.epoch(self.trial, record)

    def say(self, text: str) -> None:
        """See `Report.say`."""
        if text not in self.said:
            self.said.add(text)
            self.report.say(f"Trial {self.trial}: {text}")
