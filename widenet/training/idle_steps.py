"""What idle steps add up to: tables over all steps of a training that follow when the rate of a step turns
out lower.
"""

from threading import Lock

import numpy as np


class Roads:
    """How far a velocity carries a weight in the steps ahead. Threads may ask at once."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self._lock = Lock()
        self._rates: np.ndarray | None = None
        self._known, self._ahead, self._seen = np.zeros(0), np.zeros(0), 0

    def ahead(self, rates: np.ndarray, until: int) -> np.ndarray:
        """For every step n the sum over all later ones of rate[n + j] * momentum^j, float64 [steps + 1].

        The part of it up to step m is ahead[n] - momentum^(m - n) * ahead[m]. until: the steps up to it have
        their last rates; what was lowered since the call before is followed backward for as long as it
        changes a bit, so that nothing depends on when it was asked.
        """
        with self._lock:
            if self._rates is not rates:
                self._rates, self._known, self._seen = rates, rates.copy(), until
                self._ahead = np.full(len(rates), np.nan)
                self._ahead[-1] = 0.0
                self._follow(len(rates) - 1)
            news = slice(self._seen + 1, until + 1)
            for step in np.flatnonzero(rates[news] != self._known[news]) + news.start:
                self._known[step] = rates[step]
                self._follow(int(step))
            self._seen = max(self._seen, until)
            return self._ahead

    def _follow(self, last: int) -> None:
        """Work out what lies ahead of the step before `last`, and of those before it."""
        road = float(self._ahead[last])
        for step in range(last, 0, -1):
            road = self.momentum * (float(self._known[step]) + road)
            if self._ahead[step - 1] == road:
                return
            self._ahead[step - 1] = road


class Shrinkage:
    """What l2 alone leaves of a weight. Threads may ask at once."""

    def __init__(self, l2: float) -> None:
        self.l2 = l2
        self._lock = Lock()
        self._rates: np.ndarray | None = None
        self._logs, self._seen = np.zeros(0), 0

    def logs(self, rates: np.ndarray, until: int) -> np.ndarray:
        """The logarithm of what is left of a weight after n steps, for every n up to `until`, float64
        [steps + 1].
        """
        with self._lock:
            if self._rates is not rates:
                self._rates, self._logs, self._seen = rates, np.zeros(len(rates)), 0
            if until > self._seen:
                steps = np.log1p(-rates[self._seen + 1 : until + 1] * self.l2)
                self._logs[self._seen + 1 : until + 1] = np.cumsum(
                    np.concatenate([self._logs[self._seen : self._seen + 1], steps])
                )[1:]
                self._seen = until
            return self._logs
