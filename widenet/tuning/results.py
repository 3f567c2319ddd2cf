"""The results of a study: where each trial stands, and the best of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from widenet.tuning.rungs import Trial
from widenet.tuning.study import Study

State = Literal["finished", "waiting", "training", "failed"]


@dataclass(frozen=True)
class TrialResult:
    """One pair of documents of a study.

    Attributes:
        number: Number of the trial, from 0.
        state: "finished": it has trained to the end. "waiting": it stopped at a rung, with a checkpoint.
            "training": it has not reached its rung yet. "failed": see `problem`.
        epochs: Epochs after which it last stopped.
        value: Its metric there; None before its first rung.
        choices: The chosen values by their places in the space.
        run: Its run directory.
        fingerprint: SHA-256 of its final weights; None before it has finished.
        problem: Why it failed; None if it did not.
    """

    number: int
    state: State
    epochs: int
    value: float | None
    choices: dict[str, Any]
    run: Path
    fingerprint: str | None
    problem: str | None


@dataclass(frozen=True)
class StudyResult:
    """The results of a study.

    Attributes:
        path: Directory of the study.
        metric: The metric by which trials are compared, on the validation part.
        rungs: Epochs of each rung.
        best: The best of the trials that have come furthest; None if all failed.
        trials: All trials in order of their numbers.
        total_epochs: Epochs of all trials together.
        share_of_epochs: These as a share of the epochs of training every trial to the end.
    """

    path: Path
    metric: str
    rungs: Sequence[int]
    best: TrialResult | None
    trials: Sequence[TrialResult]
    total_epochs: int
    share_of_epochs: float


def results_of(study: Study, trials: Sequence[Trial]) -> StudyResult:
    """Return the results of a study's trials."""
    listed = [_result(study, trial) for trial in trials]
    best = study.rungs.best(trials)
    epochs = sum(trial.epochs for trial in listed)
    return StudyResult(
        study.path,
        study.metric,
        study.rungs.epochs,
        None if best is None else listed[best.number],
        listed,
        epochs,
        epochs / max(1, len(listed) * study.rungs.epochs[-1]),
    )


def _result(study: Study, trial: Trial) -> TrialResult:
    epochs = max(trial.reached, default=0)
    value = trial.reached.get(epochs)
    return TrialResult(
        trial.number,
        _state(study, trial),
        epochs,
        value,
        plain_choices(study, trial.choices),
        study.run(trial),
        trial.fingerprint,
        trial.problem,
    )


def _state(study: Study, trial: Trial) -> State:
    if trial.problem is not None:
        return "failed"
    if study.rungs.is_complete(trial):
        return "finished"
    return "training" if study.rungs.is_unfinished(trial) else "waiting"


def plain_choices(study: Study, choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return choices with the values of documents in place of labels."""
    known = study.space.choices
    return {place: known[place].value(chosen) for place, chosen in choices.items()}
