"""QSGD: unbiased gradients of a few bits.

Alistarh, Grubic, Li, Tomioka and Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Quantized:
    """A vector in few bits.

    Attributes:
        norm: Its Euclidean norm, which travels as float32.
        levels: Whole numbers from -`num_levels` to `num_levels`, int64 [N].
        num_levels: Number of levels besides 0, for each sign.
    """

    norm: float
    levels: NDArray[np.int64]
    num_levels: int

    def values(self) -> Floats:
        """Return the vector, float64 [N]."""
        return self.norm / self.num_levels * self.levels.astype(np.float64)


def quantize(vector: Floats, num_levels: int, draw: np.random.Generator) -> Quantized:
    """Round every number at random to one of its two neighbouring levels, so that its mean stays."""
    norm = float(np.sqrt((vector**2).sum()))
    if norm == 0:
        return Quantized(norm, np.zeros(len(vector), np.int64), num_levels)
    places = np.abs(vector) / norm * num_levels
    below = np.floor(places)
    levels = below + (draw.random(len(vector)) < places - below)
    return Quantized(norm, (np.sign(vector) * levels).astype(np.int64), num_levels)


def variance_bound(num: int, num_levels: int) -> float:
    """Return the bound on the variance over the squared norm (lemma 3.1)."""
    return float(min(num / num_levels**2, np.sqrt(num) / num_levels))


def omega_bits(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bits of Elias' omega code of positive whole numbers (appendix A.2)."""
    bits = np.ones(len(numbers), np.int64)
    left = numbers.astype(np.int64)
    while (left > 1).any():
        digits = np.where(left > 1, np.floor(np.log2(np.maximum(left, 1))).astype(np.int64) + 1, 0)
        bits += digits
        left = np.where(left > 1, digits - 1, 1)
    return bits


def sparse_bits(quantized: Quantized) -> int:
    """Return the bits of a message: the norm, and of every number but 0 its distance, sign and level."""
    places = np.flatnonzero(quantized.levels)
    gaps = np.diff(places, prepend=-1)
    return int(32 + omega_bits(gaps).sum() + len(places) + omega_bits(np.abs(quantized.levels[places])).sum())


def dense_bits(quantized: Quantized) -> int:
    """Return the bits of a message that holds every number in a code of equal length."""
    return 32 + len(quantized.levels) * int(np.ceil(np.log2(2 * quantized.num_levels + 1)))
