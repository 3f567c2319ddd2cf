"""Which features of a field occur together in training examples: exact counts, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from widenet.data.dataset import Dataset
from widenet.plan.tiles import COUNTED_PAIRS

_ROWS = 4096
"""Examples that are read together."""
_PIECES = 8
"""Pairs are made in pieces of `COUNTED_PAIRS` / 8, or all those of one feature of an example."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of some units, in ascending order of their positions, then of the neighbours.

    Attributes:
        positions: Position of the unit among those asked for, int64 [Z].
        features: The neighbour, int64 [Z].
        similarities: c_ij / sqrt(n_i n_j), float32 [Z]: c_ij examples have both, n_i and n_j one of them.
        ranks: Place of the neighbour among those of the unit, from 0 for the nearest, int32 [Z].
        counts: n_i of every feature of the field, int64 [width].
    """

    positions: np.ndarray
    features: np.ndarray
    similarities: np.ndarray
    ranks: np.ndarray
    counts: np.ndarray

    def nearest(self, number: int) -> "Neighbours":
        """Return so many neighbours of each unit."""
        kept = self.ranks < number
        positions, features, similarities = self.positions[kept], self.features[kept], self.similarities[kept]
        return Neighbours(positions, features, similarities, self.ranks[kept], self.counts)


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
        for start, stop in _blocks(pairs[named.start : width : named.step], COUNTED_PAIRS)
    ]
    columns = [[block.positions, block.features, block.similarities, block.ranks] for block in blocks]
    if not columns:
        none, ranks = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return Neighbours(none, none, np.zeros(0, np.float32), ranks, counts)
    positions, features, similarities, ranks = map(np.concatenate, zip(*columns, strict=True))
    return Neighbours(positions, features, similarities, ranks, counts)


def _rows(
    dataset: Dataset, field: str, units: range | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the row starts int64 [E + 1] and features int64 [Z] of the training examples, in blocks.

    Args:
        dataset: The examples.
        field: The field.
        units: Of a sequence, leave out examples without these features: to make examples distinct takes long.
    """
    repeated = dataset.field(field).kind == "sequence"
    for start in range(0, dataset.num_examples, _ROWS):
        batch = dataset.sparse(field, slice(start, start + _ROWS))
        if repeated and units is not None:
            kept_Z = torch.from_numpy(_are_in(units, batch.indices.numpy()))
            batch = batch.take(torch.unique(batch.example_of_entry()[kept_Z]))
        batch = batch.distinct() if repeated else batch
        yield batch.indptr.numpy(), batch.indices.numpy().astype(np.int64)


def _are_in(units: range, features: np.ndarray) -> np.ndarray:
    """Return which features are some of the units, bool [Z]."""
    places = features - units.start
    return np.asarray((places >= 0) & (features < units.stop) & (places % units.step == 0))


def _counted_features(dataset: Dataset, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Return how many training examples have each feature, and its pairs in them, int64 [width]."""
    counts, pairs = (np.zeros(dataset.field(field).width, dtype=np.int64) for _ in range(2))
    for indptr, features in _rows(dataset, field):
        lengths = np.diff(indptr)
        np.add.at(counts, features, 1)
        np.add.at(pairs, features, np.repeat(lengths - 1, lengths))
    return counts, pairs


def _blocks(pairs: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of blocks with at most so many pairs together, or of one entry with more."""
    before = np.concatenate([[0], np.cumsum(pairs)])
    start = 0
    while start < len(pairs):
        fitting = int(np.searchsorted(before, before[start] + most, side="right")) - 1
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
    ranks = np.empty(len(keys), np.int32)
    ranks[order] = np.arange(len(keys)) - begins[positions]  # `order` sorts by position first, as keys are
    kept = np.flatnonzero(ranks < number)
    own = counts[units.start + positions * units.step]
    similarities = (both / np.sqrt(counts[features].astype(np.float64) * own)).astype(np.float32)
    return Neighbours(first + positions[kept], features[kept], similarities[kept], ranks[kept], counts)


def _counted(dataset: Dataset, field: str, units: range, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return position x width + feature of a block's pairs, ascending int64, and how often each occurs."""
    keys, together = np.zeros(0, np.int64), np.zeros(0, np.int64)
    pending: list[np.ndarray] = []
    for indptr, features in _rows(dataset, field, units):
        for paired in _paired(indptr, features, units, width):
            pending.append(paired)
            if sum(map(len, pending)) > COUNTED_PAIRS:
                keys, together = _added(keys, together, pending)
                pending = []
    return _added(keys, together, pending)


def _paired(indptr: np.ndarray, features: np.ndarray, units: range, width: int) -> Iterator[np.ndarray]:
    """Yield the keys of the pairs of some examples, int64, in any order, a piece at a time."""
    own = np.flatnonzero(_are_in(units, features))
    examples = np.searchsorted(indptr, own, side="right") - 1
    starts, lengths = indptr[examples], indptr[examples + 1] - indptr[examples]
    for start, stop in _blocks(lengths, COUNTED_PAIRS // _PIECES):
        piece = lengths[start:stop]
        before = np.cumsum(piece) - piece
        others = np.arange(int(piece.sum())) + np.repeat(starts[start:stop] - before, piece)
        entries = np.repeat(own[start:stop], piece)
        entries, others = entries[entries != others], others[entries != others]
        yield (features[entries] - units.start) // units.step * width + features[others]


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
