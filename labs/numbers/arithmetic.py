"""A logarithmic number system: products are exact sums of logarithms, sums are read from a table.

A number is one int32: its logarithm to the base 2 in fixed point, times 2, plus 1 if it is negative.
Swartzlander and Alexopoulos, "The Sign/Logarithm Number System", IEEE Transactions on Computers, 1975.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]
"""Numbers of the system."""

RANGE = 32
"""Binary orders of magnitude on either side of 1. What is smaller becomes 0, what is larger the largest."""

_ZERO_LOG = -(1 << 28)
ZERO = np.int32(2 * _ZERO_LOG)
"""The code of 0."""


@dataclass(frozen=True)
class LogNumbers:
    """Numbers whose logarithms have a fixed number of bits after the point.

    Attributes:
        fraction_bits: Bits after the point. Neighbouring numbers differ by a factor of 2^(2^-fraction_bits).
    """

    fraction_bits: int

    @property
    def steps(self) -> int:
        """Numbers from 1 to 2, without the latter."""
        return 1 << self.fraction_bits

    @property
    def limit(self) -> int:
        """The largest logarithm, in steps."""
        return RANGE * self.steps - 1

    def encode(self, values: NDArray[np.floating]) -> Codes:
        """Return the nearest numbers of the system, by their logarithms."""
        magnitude = np.abs(values.astype(np.float64))
        safe = np.where(magnitude > 0, magnitude, 1.0)
        logs = np.minimum(np.rint(np.log2(safe) * self.steps), self.limit).astype(np.int64)
        codes = 2 * logs + (values < 0)
        return np.where((magnitude > 0) & (logs >= -self.limit), codes, ZERO).astype(np.int32)

    def decode(self, codes: Codes) -> NDArray[np.float64]:
        """Return the numbers as floating point."""
        logs = codes >> 1
        magnitude = np.where(logs >= -self.limit, np.exp2(logs / self.steps), 0.0)
        return np.where(codes & 1, -magnitude, magnitude)

    def rounded(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the nearest numbers of the system as float32."""
        return self.decode(self.encode(values)).astype(np.float32)

    def table(self) -> NDArray[np.int32]:
        """Return what a sum adds to the larger logarithm, by the distance of the two.

        The first half is for equal signs, log2(1 + 2^-d); the second for different ones, log2(1 - 2^-d).
        The last entry of each half is 0, for all further distances.
        """
        last = 0
        while round(self.steps * math.log2(1 - 2 ** (-(last + 1) / self.steps))) != 0:
            last += 1
        distances = np.arange(1, last + 2) / self.steps
        equal = np.rint(self.steps * np.log2(1 + np.exp2(-distances)))
        different = np.rint(self.steps * np.log2(1 - np.exp2(-distances)))
        equal[-1] = 0
        return np.concatenate([[self.steps], equal, [_ZERO_LOG], different]).astype(np.int32)
