"""Every random stream: a pure function of (seed, purpose, position), never of a rank, a thread or a call
count.
"""

import hashlib

import numpy as np

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def _purpose_key(purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "little")


def stream(seed: int, purpose: str, first: int = 0, second: int = 0) -> np.random.Generator:
    """A generator of its own for one purpose at one position.

    seed: 0 to 2^64 - 1, from the training document.
    purpose: what the numbers are for, such as "dropout/taste".
    first, second: the position, such as epoch and step; 0 to 2^64 - 1 each. Philox4x64-10 (Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by seed and purpose; the position fills the
    counter's upper half, so that two positions never share a block.
    """
    key = np.array([seed, _purpose_key(purpose)], dtype=np.uint64)
    counter = np.array([0, 0, first, second], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def shuffled(seed: int, purpose: str, epoch: int, size: int, positions: np.ndarray) -> np.ndarray:
    """What stands at some positions of a random permutation of range(size), without storing the permutation.

    positions: int64 [N], each in [0, size). Returns int64 [N]. A Feistel network over the next even power of
    two walks its cycles until it lands inside the range (Black and Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002), so that any part of any epoch's order costs time and memory for that part alone.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    keys = stream(seed, f"shuffle/{purpose}", epoch).integers(0, 2**64, size=_ROUNDS, dtype=np.uint64)
    result = positions.astype(np.uint64)
    pending = np.arange(len(result))
    while len(pending):
        result[pending] = _feistel(result[pending], keys, half_bits)
        pending = pending[result[pending] >= size]
    return result.astype(np.int64)


def _feistel(numbers: np.ndarray, keys: np.ndarray, half_bits: int) -> np.ndarray:
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = numbers >> shift, numbers & mask
    for key in keys:
        mixed = (right + key) * _MULTIPLIER
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MULTIPLIER
        left, right = right, left ^ ((mixed >> np.uint64(32)) & mask)
    return (left << shift) | right
