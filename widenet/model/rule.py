"""The interface of optimizers to weights: elementwise steps of whole weights, tiles and rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from torch import Tensor

from widenet.kernels import RowGradient
from widenet.kernels.compiled_steps import TileStep

if TYPE_CHECKING:
    from widenet.kernels.triton.steps import Steps

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


class Rule(Protocol):
    """An optimizer, seen from a weight."""

    @property
    def idles(self) -> bool:
        """Whether a weight or its state changes without a gradient; `idle` applies many such steps."""

    @property
    def idle_weights_move(self) -> bool:
        """Whether `idle` changes weights too, so that rows must catch up before they are read."""

    def state_for(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of a weight before its first step, tensors of the weight's shape by name."""

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        step: StepNumbers,
        bias_l2: float | None = None,
    ) -> None:
        """Make a step in place, including penalties; may overwrite the gradient.

        `bias_l2` is the only penalty on a bias, None for a weight.
        """

    def apply_to_many(self, weights: Sequence[Stepped], step: StepNumbers, are_biases: bool) -> None:
        """Make the steps of several weights or biases, as `apply` does."""

    def compiled_step(
        self, weight: Tensor, step: StepNumbers, bias_l2: float | None = None
    ) -> TileStep | None:
        """Return the same step for compiled code to make; None if there is none."""

    def launched_steps(self, weight: Tensor, step: StepNumbers) -> "Steps | None":
        """Return the same step for Triton's kernels; None if there is none."""

    def apply_to_rows(
        self,
        weight: Tensor,
        touched: RowGradient,
        state: dict[str, Tensor],
        since: Tensor | None,
        step: StepNumbers,
        bias_l2: float | None = None,
    ) -> None:
        """Make a step of some rows of a weight [R, H], or of some biases [R, 1].

        Args:
            weight: The weight or biases.
            touched: The rows and their gradient.
            state: State of the weight.
            since: Last step of each row, int32 [R], updated in place; the state catches up from there.
            step: Numbers of the step.
            bias_l2: For biases, their own l2; None for a weight.
        """

    def idle(
        self,
        weight: Tensor,
        state: dict[str, Tensor],
        since: Tensor,
        until: int,
        rates: np.ndarray,
        is_bias: bool = False,
    ) -> None:
        """Apply steps with zero gradients to rows [U, H], in place.

        Args:
            weight: The rows.
            state: Their state.
            since: Last step of each row, int32 [U].
            until: Last step to apply.
            rates: Learning rates of all steps, float64 [steps + 1].
            is_bias: Whether the rows are biases.
        """
