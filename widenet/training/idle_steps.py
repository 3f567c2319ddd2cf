"""Closed forms of many steps without a gradient, as tables over all steps of a training.

The tables are updated when the brake lowers the rate of a step.
"""

from threading import Lock

import numpy as np
import torch


class PathSums:
    """Distances that a velocity moves a weight in later steps without a gradient; threads may share it."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self._lock = Lock()
        self._rates: np.ndarray | None = None
        self._known, self._ahead, self._seen = np.zeros(0), np.zeros(0), 0

    def ahead(self, rates: np.ndarray, until: int) -> np.ndarray:
        """Return, for every step n, the sum over all later steps of rate[n + j] * momentum^j.

        The part of the sum up to step m is ahead[n] - momentum^(m - n) * ahead[m]. A rate that was lowered
        since the last call updates earlier sums for as long as it changes a bit, so that the result does not
        depend on when this is called.

        Args:
            rates: Learning rates of all steps, float64 [steps + 1].
            until: The rates of steps up to this one are final.

        Returns:
            float64 [steps + 1].
        """
        with self._lock:
            if self._rates is not rates:
                self._rates, self._known, self._seen = rates, rates.copy(), until
                self._ahead = np.full(len(rates), np.nan)
                self._ahead[-1] = 0.0
                self._follow(len(rates) - 1)
            new = slice(self._seen + 1, until + 1)
            for step in np.flatnonzero(rates[new] != self._known[new]) + new.start:
                self._known[step] = rates[step]
                self._follow(int(step))
            self._seen = max(self._seen, until)
            return self._ahead

    def _follow(self, last: int) -> None:
        """Compute the sums of the steps before `last`, going backward until one does not change."""
        total = float(self._ahead[last])
        for step in range(last, 0, -1):
            total = self.momentum * (float(self._known[step]) + total)
            if self._ahead[step - 1] == total:
                return
            self._ahead[step - 1] = total


class Shrinkage:
    """The factor by which the l2 penalty alone shrinks a weight; threads may share it."""

    def __init__(self, l2: float) -> None:
        self.l2 = l2
        self._lock = Lock()
        self._rates: np.ndarray | None = None
        self._logs, self._seen = np.zeros(0), 0

    def logs(self, rates: np.ndarray, until: int) -> np.ndarray:
        """Return the logarithms of the factors after 0 to `until` steps, float64 [steps + 1]."""
        with self._lock:
            if self._rates is not rates:
                self._rates, self._logs, self._seen = rates, np.zeros(len(rates)), 0
            if until > self._seen:
                steps = torch.from_numpy(-rates[self._seen + 1 : until + 1] * self.l2).log1p().numpy()
                self._logs[self._seen + 1 : until + 1] = np.cumsum(
                    np.concatenate([self._logs[self._seen : self._seen + 1], steps])
                )[1:]
                self._seen = until
            return self._logs
