"""Rungs: after which epochs trials wait to be compared, and which of them go on.

The rule is successive halving by promotion (Li et al., "A System for Massively Parallel Hyperparameter
Tuning", MLSys 2020), with a limit of the promotions. It reads values alone, no clock and no order of events.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Trial:
    """One pair of documents of a study, and how far its training has come.

    Attributes:
        number: Number of the trial, from 0.
        choices: The chosen values by their places in the space.
        target: The rung to which it trains, or at which it waits; see `Rungs`.
        reached: The metric by the number of epochs after which the trial stopped.
        problem: Why it failed; None if it did not.
        fingerprint: SHA-256 of its weights, once all epochs are done.
        starts: How often a worker has begun or resumed it since it reached its last rung.
        spent: The epochs of all trials of the study when it stopped, by its own epochs as text.
    """

    number: int
    choices: Mapping[str, Any]
    target: int = 0
    reached: Mapping[int, float] = field(default_factory=dict)
    problem: str | None = None
    fingerprint: str | None = None
    starts: int = 0
    spent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rungs:
    """The epochs after which trials wait.

    Attributes:
        epochs: The epochs of each rung; the last rung has all of them.
        reduction: Of this many trials at a rung, one goes on.
    """

    epochs: tuple[int, ...]
    reduction: int

    @classmethod
    def of(cls, epochs: int, num_rungs: int, reduction: int, every_epochs: int) -> "Rungs":
        """Return the rungs of a training.

        Args:
            epochs: Its epochs.
            num_rungs: Most rungs; rungs with the same epochs are one.
            reduction: See `Rungs`.
            every_epochs: Its epochs between two evaluations, after which alone it can be compared.
        """
        shares = (math.ceil(epochs / reduction**rung) for rung in range(num_rungs))
        ends = {min(epochs, math.ceil(share / every_epochs) * every_epochs) for share in shares}
        return cls(tuple(sorted(ends)), reduction)

    def value(self, trial: Trial, rung: int) -> float | None:
        """Return the metric of a trial at a rung; None before it is there.

        A trial whose training ended by itself has its last value at all later rungs.
        """
        return next((trial.reached[at] for at in sorted(trial.reached) if at >= self.epochs[rung]), None)

    def is_unfinished(self, trial: Trial) -> bool:
        """Return whether a trial still trains to its rung, or should."""
        return trial.problem is None and self.value(trial, trial.target) is None

    def is_complete(self, trial: Trial) -> bool:
        """Return whether a trial has trained to the end."""
        return self.value(trial, len(self.epochs) - 1) is not None

    def promoted(self, trials: Sequence[Trial], is_settled: bool) -> Trial | None:
        """Return the trial that goes on to the next rung; None if there is none.

        That is, at the highest rung that has one, the best of the trials that wait there, if it is among the
        best 1 / `reduction` of those that have reached the rung, and fewer than these have gone on. Without
        the second rule, suggestions that become better and better would nearly all go on.

        Args:
            trials: All trials.
            is_settled: Whether all trials wait and no new one will begin. Then the best of a rung goes on
                anyway.
        """
        for rung in reversed(range(len(self.epochs) - 1)):
            ranked = self.ranked(trials, rung)
            most = len(ranked) // self.reduction
            gone = sum(trial.target > rung for trial in ranked)
            for trial in ranked[:most] if gone < most else ():
                if self._waits(trial, rung):
                    return trial
        for rung in range(len(self.epochs) - 1) if is_settled else ():
            ranked = self.ranked(trials, rung)
            if ranked and self._waits(ranked[0], rung):
                return ranked[0]
        return None

    def _waits(self, trial: Trial, rung: int) -> bool:
        return trial.target == rung and self.value(trial, rung + 1) is None

    def ranked(self, trials: Sequence[Trial], rung: int) -> list[Trial]:
        """Return the trials that have reached a rung and have not failed, the best first."""
        values = {
            trial.number: value
            for trial in trials
            if trial.problem is None and (value := self.value(trial, rung)) is not None
        }
        there = [trial for trial in trials if trial.number in values]
        return sorted(there, key=lambda trial: (-values[trial.number], trial.number))

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the best trial of the highest rung that one has reached; None without one."""
        for rung in reversed(range(len(self.epochs))):
            if ranked := self.ranked(trials, rung):
                return ranked[0]
        return None
