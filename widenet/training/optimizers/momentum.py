"""Momentum: steps along a fading sum of gradients."""

import numpy as np
import torch
from torch import Tensor

from widenet.spec.optimizers import Momentum
from widenet.training.optimizers import multiply_rows

_NEGLIGIBLE = 1e-20
"""A power of the momentum below this moves no float32 weight."""


class Velocity:
    """Momentum, and Nesterov's with its look ahead."""

    state_names = ("velocity",)
    idles = True

    def __init__(self, momentum: float, looks_ahead: bool) -> None:
        self.momentum, self.looks_ahead = momentum, looks_ahead

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        """One step."""
        del number
        velocity = state["velocity"].mul_(self.momentum).add_(gradient)
        direction = gradient.add_(velocity, alpha=self.momentum) if self.looks_ahead else velocity
        weight.add_(direction, alpha=-rate)

    def idle(self, weight: Tensor, state: dict[str, Tensor], since_U: np.ndarray, until: int, rates: np.ndarray) -> None:
        """Rolling on: w -= v * sum of rate * momentum^j (Nesterov: once more times momentum); v *= momentum^skipped."""
        starts, place_U = np.unique(since_U, return_inverse=True)
        skipped = until - starts
        distance = np.zeros(len(starts))
        longest = int(skipped.max(initial=0))
        if self.momentum > 0:
            longest = min(longest, int(np.ceil(np.log(_NEGLIGIBLE) / np.log(self.momentum))))
            for later in range(1, longest + 1):
                still = skipped >= later
                distance[still] += rates[starts[still] + later] * self.momentum**later
        if self.looks_ahead:
            distance *= self.momentum
        factor_U1 = torch.from_numpy(distance[place_U].astype(np.float32)).to(weight.device)[:, None]
        weight.addcmul_(state["velocity"], factor_U1, value=-1)
        multiply_rows(state["velocity"], self.momentum ** (until - since_U).astype(np.float64))


def formula(spec: Momentum) -> Velocity:
    """The formula of the spec."""
    return Velocity(spec.momentum, looks_ahead=False)
