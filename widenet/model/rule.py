"""What a weight needs from an optimizer: an elementwise rule that works on whole weights, tiles and rows
alike.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from widenet.kernels import RowGradient


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of one optimizer step.

    number: counts from 1 over the whole training.
    rates: float64 [steps + 1], the learning rate of every step; rates[0] is unused. Those of steps that were
    made stay as they are.
    gradient_scale: every gradient is multiplied by it, to keep a norm limit.
    loaded: what of this changes from step to step, where a device's kernels load it (`Rule.on_device`); None
    elsewhere.
    """

    number: int
    rates: np.ndarray
    gradient_scale: float = 1.0
    loaded: Tensor | None = None

    @property
    def rate(self) -> float:
        """This step's learning rate."""
        return float(self.rates[self.number])


class Rule(Protocol):
    """An optimizer, seen from a weight."""

    @property
    def idles(self) -> bool:
        """Whether a weight or its state still moves in steps where its gradient is zero, by a closed form
        that `idle` applies.
        """

    @property
    def idle_weights_move(self) -> bool:
        """Whether `idle` moves weights, not their state alone, so that rows must be woken before they are
        read.
        """

    def on_device(self, step: StepNumbers, device: torch.device) -> StepNumbers:
        """The numbers of a step, also in a device's memory if its kernels load them there."""

    def state_for(self, weight: Tensor) -> dict[str, Tensor]:
        """The state of a weight before its first step, each tensor of the weight's shape."""

    def apply(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], step: StepNumbers) -> None:
        """One step in place, penalties included. May overwrite the gradient."""

    def apply_to_rows(
        self,
        weight: Tensor,
        touched: RowGradient,
        state: dict[str, Tensor],
        since: Tensor | None,
        step: StepNumbers,
        bias_l2: float | None = None,
    ) -> None:
        """`apply` for some rows of a weight [R, H], or `apply_to_bias` for some biases [R, 1], their own l2
        given.

        since: int32 [R], when each row moved last; state that idled since then catches up, and the rows are
        noted as moved in this step.
        """

    def apply_to_bias(
        self, bias: Tensor, gradient: Tensor, state: dict[str, Tensor], step: StepNumbers, l2: float = 0.0
    ) -> None:
        """One step of a bias, which the document's penalties and weight decay leave alone."""

    def idle(
        self,
        weight: Tensor,
        state: dict[str, Tensor],
        since: Tensor,
        until: int,
        rates: np.ndarray,
        is_bias: bool = False,
    ) -> None:
        """Bring rows [U, H], last moved in step `since` (int32 [U]), to where zero gradients would have
        led them after step `until`.
        """
