"""Normalization of numbers: mean 0 and deviation 1 over some rows, exact whatever their order."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Normalization:
    """What is subtracted from each column of numbers, and what they are then divided by.

    Attributes:
        mean: Mean of each column.
        deviation: Standard deviation of each column; 1 for a constant one.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> "Normalization":
        """Return the normalization of rows [N, C] in the range of float32, of which NaN are left out.

        Sums are exact and rounded once, so the order of the rows does not count.
        """
        mean, deviation = [], []
        for column in numbers.T:
            known = column[~np.isnan(column)].tolist()
            center = math.fsum(known) / max(1, len(known))
            center = min(max(center, min(known, default=0.0)), max(known, default=0.0))  # although rounded
            spread = math.sqrt(math.fsum((each - center) ** 2 for each in known) / max(1, len(known)))
            mean.append(center)
            deviation.append(spread or 1.0)
        return cls(tuple(mean), tuple(deviation))

    def applied(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows [N, C] normalized; NaN stay."""
        normalized: NDArray[np.float64] = (numbers - np.array(self.mean)) / np.array(self.deviation)
        return normalized

    @property
    def facts(self) -> dict[str, list[float]]:
        """Mean and deviation, for JSON."""
        return {"mean": list(self.mean), "deviation": list(self.deviation)}
