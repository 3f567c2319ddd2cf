"""The results of a study: where each trial stands, and the best of them; and what follows a study."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

State = Literal["finished", "stopped", "training", "failed"]


@dataclass(frozen=True)
class TrialResult:
    """One pair of documents of a study.

    Attributes:
        number: Number of the trial, from 0.
        state: "finished": it has trained to the end. "stopped": others were better at a rung. "training": it
            trains, or waits for a worker. "failed": see `problem`.
        epochs: Finished epochs.
        value: Its metric after these; None before the first evaluation.
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
        rungs: Epochs after which trials are compared; the last are those of a whole training.
        best: The best of the finished trials; None if there is none.
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


class StudyReport:
    """Follows a study; a subclass overrides only the methods that it needs."""

    def begin(self, trial: int) -> None:
        """Called when a trial begins or resumes in this process."""

    def end(self, trial: TrialResult) -> None:
        """Called when a trial has finished, was stopped or has failed."""

    def say(self, text: str) -> None:
        """Called with a sentence that the user should know."""
