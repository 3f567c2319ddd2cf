"""The brake: where the loss leaps, a step is left out and the next ones are short."""

from dataclasses import dataclass, field

import numpy as np

_WARMUP_STEPS, _SHORT_STEPS = 100, 24
_LEAP, _SHARE_OF_NEW_LOSS, _SHARE_OF_RATE = 2.0, 0.1, 0.1


@dataclass
class Brake:
    """What a training remembers of its losses.

    seen: steps judged. mean: the moving average of the loss. short: steps still to be made short.
    left_out: steps left out so far; they count for no optimizer and no schedule.
    shortened: the steps that were made short, counted without those that were left out.
    """

    seen: int = 0
    mean: float = 0.0
    short: int = 0
    left_out: int = 0
    shortened: list[int] = field(default_factory=list)

    def leaves_out(self, loss: float) -> bool:
        """Whether the step of a batch with that loss is left out."""
        self.mean += _SHARE_OF_NEW_LOSS * (loss - self.mean)
        self.seen += 1
        if self.seen <= _WARMUP_STEPS or loss <= _LEAP * self.mean:
            return False
        self.short = _SHORT_STEPS
        self.left_out += 1
        return True

    def shorten(self, number: int, rates: np.ndarray) -> None:
        """Lower the rate of step `number` where it is to be short; to be called once for every step that is
        made.

        rates: of all steps, float64 [steps + 1].
        """
        if self.short:
            self.short -= 1
            self.shortened.append(number)
            rates[number] *= _SHARE_OF_RATE

    def braked(self, rates: np.ndarray) -> np.ndarray:
        """The same learning rates, those lowered that were made short before."""
        rates[self.shortened] *= _SHARE_OF_RATE
        return rates
