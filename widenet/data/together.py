"""Which features of a field occur together in training examples: exact counts, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from widenet.data.dataset import Dataset
from widenet.plan.tiles import COUNTED_PAIRS

_ROWS = 4096
"""Examples that are read together."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of some units, in ascending order of their positions, then of the neighbours.

    Attributes:
        positions: Position of the unit among those asked for, int64 [Z].
        features: The neighbour, int64 [Z].
        similarities: c_ij / sqrt(n_i n_j), float32 [Z]: c_ij examples have both, n_i and n_j one of them.
        counts: n_i of every feature of the field, int64 [width].
    """

    positions: np.ndarray
    features: np.ndarray
    similarities: np.ndarray
    counts: np.ndarray


def neighbours(dataset: Dataset, field: str, units: range, number: int) -> Neighbours:
    """Return the features that occur most with each of some units, in the training part.

    The nearest are those with the largest c_ij^2 / n_i; of equal ones, lower features. An example of h
    features has h (h - 1) pairs, so long examples take most of the time. Memory holds a few copies of
    `COUNTED_PAIRS` keys, or of the pairs of one unit if it alone has more distinct ones.

    Args:
        dataset: The examples.
        field: A sparse field, or a sequence, of which each feature counts once.
        units: Ascending features of this field; those from its width on occur with none.
        number: Largest number of neighbours of a unit.
    """
    width = dataset.field(field).width
    named = units[: len(range(units.start, width, units.step))]
    counts, pairs = _counted_features(dataset, field)
    blocks = [
        _nearest(dataset, field, named[start:stop], counts, number, start)
        for start, stop in _blocks(pairs[named.start : width : named.step])
    ]
    columns = [[block.positions, block.features, block.similarities] for block in blocks]
    if not columns:
        return Neighbours(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), counts)
    positions, features, similarities = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Neighbours(positions, features, similarities, counts)


def _rows(dataset: Dataset, field: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the row starts int64 [E + 1] and features int64 [Z] of all training examples, in blocks."""
    repeated = dataset.field(field).kind == "sequence"
    for start in range(0, dataset.num_examples, _ROWS):
        batch = dataset.sparse(field, slice(start, start + _ROWS))
        batch = batch.distinct() if repeated else batch
        yield batch.indptr.numpy(), batch.indices.numpy().astype(np.int64)


def _counted_features(dataset: Dataset, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Return how many training examples have each feature, and its pairs in them, int64 [width]."""
    counts, pairs = (np.zeros(dataset.field(field).width, dtype=np.int64) for _ in range(2))
    for indptr, features in _rows(dataset, field):
        lengths = np.diff(indptr)
        np.add.at(counts, features, 1)
        np.add.at(pairs, features, np.repeat(lengths - 1, lengths))
    return counts, pairs


def _blocks(pairs: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield start and stop of blocks of units with at most `COUNTED_PAIRS` pairs each, or of one unit."""
    before = np.concatenate([[0], np.cumsum(pairs)])
    start = 0
    while start < len(pairs):
        fitting = int(np.searchsorted(before, before[start] + COUNTED_PAIRS, side="right")) - 1
        stop = max(start + 1, fitting)
        yield start, stop
        start = stop


def _nearest(
    dataset: Dataset, field: str, units: range, counts: np.ndarray, number: int, first: int
) -> Neighbours:
    """Return the neighbours of a block of units, the first of which has the position `first`."""
    width = len(counts)
    keys, together = _counted(dataset, field, units, width)
    positions, features = keys // width, keys % width
    both = together.astype(np.float64)
    order = np.lexsort((features, -(both * both / counts[features]), positions))
    begins = np.searchsorted(positions, np.arange(len(units)))
    ranks = np.arange(len(keys)) - begins[positions]  # `order` sorts by position first, as keys are
    kept = np.sort(order[ranks < number])
    own = counts[units.start + positions * units.step]
    similarities = (both / np.sqrt(counts[features].astype(np.float64) * own)).astype(np.float32)
    return Neighbours(first + positions[kept], features[kept], similarities[kept], counts)


def _counted(dataset: Dataset, field: str, units: range, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return position x width + feature of a block's pairs, ascending int64, and how often each occurs."""
    keys, together = np.zeros(0, np.int64), np.zeros(0, np.int64)
    pending: list[np.ndarray] = []
    for indptr, features in _rows(dataset, field):
        pending.append(_paired(indptr, features, units, width))
        if sum(map(len, pending)) > COUNTED_PAIRS:
            keys, together = _added(keys, together, pending)
            pending = []
    return _added(keys, together, pending)


def _paired(indptr: np.ndarray, features: np.ndarray, units: range, width: int) -> np.ndarray:
    """Return the keys of the pairs of some examples, int64, in any order."""
    places = features - units.start
    own = np.flatnonzero((places >= 0) & (features < units.stop) & (places % units.step == 0))
    examples = np.searchsorted(indptr, own, side="right") - 1
    starts, lengths = indptr[examples], indptr[examples + 1] - indptr[examples]
    before = np.cumsum(lengths) - lengths
    others = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    entries = np.repeat(own, lengths)
    entries, others = entries[entries != others], others[entries != others]
    keys: np.ndarray = places[entries] // units.step * width + features[others]
    return keys


def _added(
    keys: np.ndarray, together: np.ndarray, pending: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Add pairs to counts of pairs."""
    fresh, times = np.unique(np.concatenate([np.zeros(0, np.int64), *pending]), return_counts=True)
    if not len(keys):
        return fresh, times
    merged, places = np.unique(np.concatenate([keys, fresh]), return_inverse=True)
    total = np.zeros(len(merged), np.int64)
    np.add.at(total, places, np.concatenate([together, times]))
    return merged, total
