"""Where a training stands."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from widenet.spec.training import TrainingSpec
from widenet.training.arithmetic import ARITHMETIC, UNCOUNTED
from widenet.training.brake import Brake

_START_EXAMPLES = 256
"""How many examples at least tell what the loss began with."""


@dataclass
class LoopState:
    """Where a training stands: all that a resumed one needs besides the weights and the optimizer's state.

    epoch: finished epochs. step: finished steps of the next one; loss_sum, examples and seconds are of those
    steps, reading_seconds what of these they waited for batches. start_loss: the mean loss of the first
    start_examples examples of all.
    best: the best value of the metric so far, reached after best_epoch epochs; waited: evaluations since.
    brake: what it remembers, where the training has one. arithmetic: the versions of it that made steps, the
    current one last.
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
    brake: Brake = field(default_factory=Brake)
    arithmetic: list[int] = field(default_factory=lambda: [ARITHMETIC])

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "LoopState":
        """The state that a checkpoint holds."""
        return cls(**{"arithmetic": [UNCOUNTED], **facts, "brake": Brake(**facts.get("brake", {}))})

    def steps_made(self, steps_per_epoch: int) -> int:
        """Finished steps of the whole training, without those that the brake left out."""
        return self.epoch * steps_per_epoch + self.step - self.brake.left_out

    def has_ended(self, training: TrainingSpec) -> bool:
        """Whether no step is left: all epochs are finished, or evaluations have not been better for long
        enough.
        """
        stop_after = None if training.evaluation is None else training.evaluation.stop_after
        return self.epoch >= training.epochs or (stop_after is not None and self.waited >= stop_after)

    def add(self, loss: float, num_examples: int, seconds: float) -> None:
        """Count a step that was made of so many examples."""
        self.step += 1
        self.loss_sum += loss * num_examples
        self.examples += num_examples
        self.seconds += seconds
        if self.epoch == 0 and self.start_examples < _START_EXAMPLES:
            self.start_examples += num_examples
            self.start_loss += (loss - self.start_loss) * num_examples / self.start_examples

    def end_epoch(self) -> dict[str, Any]:
        """Begin the next epoch; return what the log says of the steps of the one that ended."""
        seconds = max(self.seconds, 1e-9)
        record = {
            "epoch": self.epoch + 1,
            "loss": self.loss_sum / max(self.examples, 1),
            "seconds": round(seconds, 3),
            "reading_seconds": round(self.reading_seconds, 3),
            "examples_per_second": round(self.examples / seconds, 1),
        }
        self.epoch, self.step, self.loss_sum, self.examples = self.epoch + 1, 0, 0.0, 0
        self.seconds = self.reading_seconds = 0.0
        return record

    def judge(self, value: float) -> bool:
        """Note the metric of the epoch that ended; return whether it is the best so far."""
        if self.best is None or value > self.best:
            self.best, self.best_epoch, self.waited = value, self.epoch, 0
            return True
        self.waited += 1
        return False


class Stopwatch:
    """Seconds between laps, without pauses."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        before, self._since = self._since, time.monotonic()
        return self._since - before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what happens within."""
        started = time.monotonic()
        yield
        self._since += time.monotonic() - started
