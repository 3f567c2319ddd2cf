"""The numbers of an optimizer's step."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

Stepped = tuple[Tensor, Tensor, dict[str, Tensor]]
"""A weight, its gradient and its state."""


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of one optimizer step.

    Attributes:
        number: Number of the step in the whole training, from 1.
        rates: Learning rate of every step, float64 [steps + 1]; rates[0] is unused.
        gradient_scale: Factor on every gradient, to keep a norm limit.
    """

    number: int
    rates: np.ndarray
    gradient_scale: float = 1.0

    @property
    def rate(self) -> float:
        """This step's learning rate."""
        return float(self.rates[self.number])
