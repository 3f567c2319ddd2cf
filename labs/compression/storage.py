"""How pruned weights are stored: distances between those that stay, and values from a short list.

Han, Mao and Dally, "Deep Compression", ICLR 2016, sections 2 and 3.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labs.compression.huffman import encode

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shared:
    """A pruned matrix of which many weights share a value.

    Attributes:
        mask: Which weights stay, bool [N].
        places: For each of them, which of the centres it has, int64 [M].
        centres: float32 [C].
    """

    mask: NDArray[np.bool_]
    places: NDArray[np.int64]
    centres: Floats

    def values(self) -> Floats:
        """Return the matrix as a vector, float32 [N]."""
        out = np.zeros(len(self.mask), np.float32)
        out[self.mask] = self.centres[self.places]
        return out


@dataclass(frozen=True)
class Sizes:
    """Bytes of a matrix, rung by rung of the ladder."""

    dense: int
    pruned: int
    shared: int
    coded: int

    def __add__(self, other: "Sizes") -> "Sizes":
        return Sizes(
            self.dense + other.dense,
            self.pruned + other.pruned,
            self.shared + other.shared,
            self.coded + other.coded,
        )


def largest(values: Floats, share: float) -> NDArray[np.bool_]:
    """Return which weights of a vector stay: a share of them, those of the largest magnitude."""
    kept = max(1, round(share * len(values)))
    mask = np.zeros(len(values), bool)
    mask[np.argsort(-np.abs(values), kind="stable")[:kept]] = True
    return mask


def share_values(values: Floats, mask: NDArray[np.bool_], bits: int, rounds: int = 20) -> Shared:
    """Replace the weights that stay by at most 2^bits centres, by k-means from evenly spaced centres."""
    kept = values[mask].astype(np.float64)
    centres = np.linspace(kept.min(), kept.max(), 2**bits)
    for _ in range(rounds):
        places = nearest(kept, centres)
        counts = np.bincount(places, minlength=len(centres))
        sums = np.bincount(places, weights=kept, minlength=len(centres))
        centres = np.sort(np.where(counts > 0, sums / np.maximum(counts, 1), centres))
    return Shared(mask, nearest(kept, centres), centres.astype(np.float32))


def nearest(values: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the position of the nearest centre for every value; the centres ascend."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values).astype(np.int64)


def distances(mask: NDArray[np.bool_], bits: int) -> NDArray[np.int64]:
    """Return the distances between weights that stay; longer ones pass over fillers, which have the value 0.

    A distance of 2^bits ends at a filler.
    """
    longest = 2**bits
    gaps = np.diff(np.flatnonzero(mask), prepend=-1)
    fillers = (gaps - 1) // longest
    ends = np.cumsum(fillers + 1) - 1
    out = np.full(int((fillers + 1).sum()), longest, np.int64)
    out[ends] = gaps - fillers * longest
    return out


def sizes(shared: Shared, value_bits: int, gap_bits: int = 5) -> Sizes:
    """Return the bytes of each rung, fillers included; a whole matrix has no distances."""
    gap_bits = 0 if shared.mask.all() else gap_bits
    gaps = distances(shared.mask, gap_bits) if gap_bits else np.ones(len(shared.mask), np.int64)
    fillers = len(gaps) - len(shared.places)
    table = 4 * len(shared.centres)
    symbols = np.concatenate([shared.places, np.full(fillers, len(shared.centres))])
    return Sizes(
        4 * len(shared.mask),
        -(-len(gaps) * (32 + gap_bits) // 8),
        -(-len(gaps) * (value_bits + gap_bits) // 8) + table,
        encode(symbols).num_bytes + (encode(gaps).num_bytes if gap_bits else 0) + table,
    )
