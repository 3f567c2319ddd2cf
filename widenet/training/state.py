"""The state of a training between two steps, and the interface of reports that follow it."""

from dataclasses import dataclass, field
from typing import Any

from widenet.spec.training import TrainingSpec

ARITHMETIC = 10
"""Raised with every change that moves a bit of trained weights; the changelog lists it as *Changed*."""

NORMS = "norms/"
"""How the entries of a log line begin that have a norm: of weights, of gradients and activations of the last
step.
"""
_START_EXAMPLES = 256
"""Number of examples averaged for the initial loss, rounded up to whole batches."""


@dataclass
class LoopState:
    """State of a training besides its weights and the optimizer's state.

    Attributes:
        epoch: Number of finished epochs.
        step: Number of finished steps in the current epoch.
        loss_sum: Sum of the examples' losses over the finished steps of the current epoch.
        examples: Number of examples in these steps.
        seconds: Duration of these steps.
        reading_seconds: Part of these seconds spent waiting for batches.
        start_loss: Mean loss of the first `start_examples` examples of the training.
        start_examples: See `start_loss`.
        best: Best value of the metric so far.
        best_epoch: Number of finished epochs when it was measured.
        waited: Number of evaluations since then.
        norms: Norms of the gradients and activations of the last step of the current epoch, for the log;
            empty before that step.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    examples: int = 0
    seconds: float = 0.0
    reading_seconds: float = 0.0
    start_loss: float = 0.0
    start_examples: int = 0
    best: float | None = None
    best_epoch: int | None = None
    waited: int = 0
    norms: dict[str, float | None] = field(default_factory=dict)

    def steps_made(self, steps_per_epoch: int) -> int:
        """Return the number of finished steps of the whole training."""
        return self.epoch * steps_per_epoch + self.step

    def has_ended(self, training: TrainingSpec) -> bool:
        """Return whether all epochs are finished, or the metric has not improved for long enough."""
        stop_after = None if training.evaluation is None else training.evaluation.stop_after
        return self.epoch >= training.epochs or (stop_after is not None and self.waited >= stop_after)

    def add(self, loss: float, num_examples: int, seconds: float, waited: float) -> None:
        """Count a finished step, which took some seconds, of which it waited some for its batch."""
        self.step += 1
        self.loss_sum += loss * num_examples
        self.examples += num_examples
        self.seconds += seconds
        self.reading_seconds += waited
        if self.epoch == 0 and self.start_examples < _START_EXAMPLES:
            self.start_examples += num_examples
            self.start_loss += (loss - self.start_loss) * num_examples / self.start_examples

    def end_epoch(self) -> dict[str, Any]:
        """Begin the next epoch; return the log entries of the finished one."""
        seconds = max(self.seconds, 1e-9)
        record: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "loss": self.loss_sum / max(self.examples, 1),
            "seconds": round(seconds, 3),
            "reading_seconds": round(self.reading_seconds, 3),
            "examples_per_second": round(self.examples / seconds, 1),
            **{f"{NORMS}{name}": norm for name, norm in self.norms.items() if norm is not None},
        }
        if self.start_examples and self.epoch == 0:
            record["start_loss"] = self.start_loss
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sum, self.examples = 0.0, 0
        self.seconds, self.reading_seconds, self.norms = 0.0, 0.0, {}
        return record

    def is_best(self, value: float) -> bool:
        """Record the metric of the finished epoch; return whether it is the best so far."""
        if self.best is None or value > self.best:
            self.best, self.best_epoch, self.waited = value, self.epoch, 0
            return True
        self.waited += 1
        return False


class Report:
    """Follows a training; a subclass overrides only the methods that it needs."""

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        """Called before the first step, of a new or a resumed training."""

    def advance(self, num_examples: int, loss: float) -> None:
        """Called after a step."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its line of log.jsonl."""

    def tried(self, text: str) -> None:
        """Called after the last epoch for each neighbourhood term that is tried, with the best so far."""

    def say(self, text: str) -> None:
        """Called with a sentence that the user should know."""


class Silence(Report):
    """A report that does nothing."""
