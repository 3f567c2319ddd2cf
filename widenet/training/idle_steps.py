"""Closed forms of many steps without a gradient, as tables over all steps of a training."""

from collections.abc import Callable
from threading import Lock

import numpy as np
import torch


class StepTable:
    """Numbers of all steps, computed once from their learning rates; threads may share it."""

    def __init__(self, compute: Callable[[np.ndarray], np.ndarray]) -> None:
        self._compute, self._lock = compute, Lock()
        self._rates: np.ndarray | None = None
        self._table = np.zeros(0)

    def of(self, rates: np.ndarray) -> np.ndarray:
        """Return the numbers of the steps with these rates; both are float64 [steps + 1]."""
        with self._lock:
            if self._rates is not rates:
                self._rates, self._table = rates, self._compute(rates)
            return self._table


def path_sums(momentum: float) -> StepTable:
    """Return how far a velocity moves a weight in all later steps without a gradient.

    For step n, it is the sum of rate[n + j] * momentum^j over j > 0. The part of the sum up to step m is
    table[n] - momentum^(m - n) * table[m].
    """

    def compute(rates: np.ndarray) -> np.ndarray:
        ahead, total = np.zeros(len(rates)), 0.0
        for step in range(len(rates) - 1, 0, -1):
            total = momentum * (float(rates[step]) + total)
            ahead[step - 1] = total
        return ahead

    return StepTable(compute)


def shrinkage(l2: float) -> StepTable:
    """Return the logarithms of the factors by which the l2 penalty alone shrinks a weight up to each step."""

    def compute(rates: np.ndarray) -> np.ndarray:
        logs = np.zeros(len(rates))
        logs[1:] = np.cumsum(torch.from_numpy(-rates[1:] * l2).log1p().numpy())
        return logs

    return StepTable(compute)
