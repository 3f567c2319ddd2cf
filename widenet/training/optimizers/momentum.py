"""Momentum: steps along a fading sum of gradients."""

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.powers import powers
from widenet.spec.optimizers import Momentum
from widenet.training.idle_steps import path_sums
from widenet.training.optimizers import multiply_rows
from widenet.transfer import sent


class Velocity:
    """Momentum, and Nesterov's with its look ahead."""

    def __init__(self, momentum: float, looks_ahead: bool) -> None:
        self.momentum, self.looks_ahead = momentum, looks_ahead
        self._path_sums = path_sums(momentum)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """See `Formula.constants`."""
        del number
        return self.momentum, self.momentum if self.looks_ahead else 0.0, rate

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        """One step."""
        del number
        velocity = state["velocity"].mul_(self.momentum).add_(gradient)
        direction = gradient.add_(velocity, alpha=self.momentum) if self.looks_ahead else velocity
        weight.add_(direction, alpha=-rate)

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        """Apply the skipped steps, in which only the velocity moves the weights.

        w -= v * sum of rate * momentum^j (Nesterov multiplies by momentum once more);
        v *= momentum^skipped.
        """
        ahead = torch.from_numpy(self._path_sums.of(rates))
        fade_U = self.fade((until - since_U).double())
        distance_U = ahead[since_U] - fade_U * ahead[until]
        if self.looks_ahead:
            distance_U *= self.momentum
        factor_U1 = sent(distance_U.float(), weight.device)[:, None]
        weight.addcmul_(state["velocity"], factor_U1, value=-1)
        multiply_rows(state["velocity"], fade_U)

    def fade(self, steps_U: Tensor) -> Tensor:
        """See `Idling.fade`."""
        return powers(self.momentum, steps_U)


def formula(spec: Momentum) -> Velocity:
    """The formula of the spec."""
    return Velocity(spec.momentum, looks_ahead=False)
