"""Random streams: pure functions of (seed, purpose, position), not of a rank, a thread or a call count."""

import hashlib

import numpy as np

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def stream(seed: int, purpose: str, first: int = 0, second: int = 0) -> np.random.Generator:
    """Return the random generator of one purpose at one position.

    The generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
    keyed by seed and purpose. The position fills the upper half of the counter, so two positions never share
    a block.

    Args:
        seed: 0 to 2^64 - 1, from the training document.
        purpose: What the numbers are for, such as "dropout/taste".
        first: First part of the position, such as the epoch; 0 to 2^64 - 1.
        second: Second part of the position, such as the step; 0 to 2^64 - 1.
    """
    digest = hashlib.sha256(purpose.encode()).digest()
    key = np.array([seed, int.from_bytes(digest[:8], "little")], dtype=np.uint64)
    counter = np.array([0, 0, first, second], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


class StepRandom:
    """The random numbers of one training step, as functions of a purpose."""

    def __init__(self, seed: int, epoch: int, step: int) -> None:
        """Take the seed of the training, and the step's place: its epoch, and its number there."""
        self._seed, self._place = seed, (epoch, step)

    def kept(self, purpose: str, shape: tuple[int, ...], share_dropped: float) -> np.ndarray:
        """Return a bool array whose entries are true with probability 1 - share_dropped."""
        kept: np.ndarray = self._stream(purpose).random(shape, dtype="float32") >= share_dropped
        return kept

    def stratified(self, purpose: str, num: int) -> np.ndarray:
        """Return ascending random numbers, one in each of `num` equal pieces of [0, 1), float64 [num]."""
        return (np.arange(num) + self._stream(purpose).random(num)) / num

    def _stream(self, purpose: str) -> np.random.Generator:
        return stream(self._seed, purpose, *self._place)


def shuffled(seed: int, purpose: str, epoch: int, size: int, positions: np.ndarray) -> np.ndarray:
    """Return the entries of a random permutation of range(size) at some positions, without storing all of it.

    A Feistel network over the next even power of two walks its cycles until it lands inside the range (Black
    and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). So any part of any epoch's order costs
    time and memory for that part alone.

    Args:
        seed: As for `stream`.
        purpose: As for `stream`.
        epoch: Each epoch has its own permutation.
        size: Length of the permutation.
        positions: int64 [N], each in [0, size).

    Returns:
        int64 [N], each in [0, size).
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
