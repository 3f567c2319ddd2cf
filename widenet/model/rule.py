"""The numbers of an optimizer's step, and the steps that compiled code makes."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from widenet.kernels.optimizer_steps import TileStep

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


@dataclass(frozen=True)
class CompiledStep:
    """The optimizer's step of a shard, for compiled code that makes it.

    Attributes:
        step: The step.
        states: The optimizer's states, of the shape of the weights or biases.
    """

    step: TileStep
    states: list[Tensor]


@dataclass(frozen=True)
class ShardSteps:
    """The steps of an output's shard.

    Attributes:
        weight: That of its weights.
        bias: That of its biases; None if it has none.
    """

    weight: CompiledStep
    bias: CompiledStep | None
