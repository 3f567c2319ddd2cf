"""Which features of a field occur together in training examples: sums of whole numbers, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from widenet.data.buckets import ascending
from widenet.data.dataset import Dataset
from widenet.plan.tiles import COUNTED_PAIRS
from widenet.spec.layers import Order

_ROWS, _ENTRIES = 4096, 1 << 18
"""Most examples that are read together, and most of their entries, unless a single one has more."""
_PIECES = 8
"""Pairs are made in pieces of `COUNTED_PAIRS` / 8, or all those of one feature of an example."""
_ONE_IN_ORDER = 1 << 20
"""In order, 1 / d is rounded down to a multiple of 1 / 2^20, so that no order of a sum matters."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of some units, in ascending order of their positions, then of the neighbours.

    Attributes:
        positions: Position of the unit among those asked for, int64 [Z].
        features: The neighbour, int64 [Z].
        similarities: c_ij / sqrt(n_i n_j), float32 [Z]: c_ij examples have both, n_i and n_j one of them. In
            order, c_ij is the sum of 1 / d over them, if the features are d places apart; forward, over those
            in which j is later.
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


def neighbours(
    dataset: Dataset, field: str, units: range, number: int, order: Order = "ignore"
) -> Neighbours:
    """Return the features that occur most with each of some units, in the training part.

    The nearest are those with the largest c_ij^2 / n_i; of equal ones, lower features. An example of h
    features has h (h - 1) pairs, so long examples take most of the time. Memory holds a few copies of
    `COUNTED_PAIRS` keys, or of the pairs of one unit if it alone has more distinct ones.

    Args:
        dataset: The examples.
        field: A sparse field, or a sequence, of which each feature counts once.
        units: Ascending features of this field; those from its width on occur with none.
        number: Largest number of neighbours of a unit.
        order: How places in a sequence count, as in `spec.layers.Neighbourhood`.
    """
    examples = _Examples(dataset, field, order)
    named = units[: len(range(units.start, examples.width, units.step))]
    counts, pairs = examples.counts()
    blocks = [
        _nearest(examples.pairs(named[start:stop]), examples.one, named[start:stop], counts, number, start)
        for start, stop in _blocks(pairs[named.start : examples.width : named.step], COUNTED_PAIRS)
    ]
    columns = [[block.positions, block.features, block.similarities, block.ranks] for block in blocks]
    if not columns:
        none, ranks = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return Neighbours(none, none, np.zeros(0, np.float32), ranks, counts)
    positions, features, similarities, ranks = map(np.concatenate, zip(*columns, strict=True))
    return Neighbours(positions, features, similarities, ranks, counts)


@dataclass(frozen=True)
class _Examples:
    """The training examples of a field, in which each feature counts once."""

    dataset: Dataset
    field: str
    order: Order

    @property
    def width(self) -> int:
        """Number of features."""
        return self.dataset.field(self.field).width

    @property
    def one(self) -> int:
        """What a pair counts that is next to each other, or any pair without order."""
        return 1 if self.order == "ignore" else _ONE_IN_ORDER

    def rows(self, units: range | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row starts, int64 [E + 1], and features, int64 [Z], in blocks.

        Args:
            units: Of a sequence, leave out examples without these features: to make others distinct takes
                long. None: all examples, whose features may have any order.
        """
        repeated = self.dataset.field(self.field).kind == "sequence"
        for rows in self._read_together():
            batch = self.dataset.sparse(self.field, rows)
            if repeated and units is not None:
                kept_Z = torch.from_numpy(_are_in(units, batch.indices.numpy()))
                batch = batch.take(torch.unique(batch.example_of_entry()[kept_Z]))
            if repeated:
                needs_order = self.order != "ignore" and units is not None
                batch = batch.distinct_in_order() if needs_order else batch.distinct()
            yield batch.indptr.numpy(), batch.indices.numpy().astype(np.int64)

    def _read_together(self) -> Iterator[slice]:
        for first in range(0, self.dataset.num_examples, _ROWS):
            lengths = self.dataset.entry_counts(self.field, slice(first, first + _ROWS))
            for start, stop in _blocks(lengths, _ENTRIES):
                yield slice(first + start, first + stop)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how many examples have each feature, and its pairs in them, int64 [width]."""
        counts, pairs = (np.zeros(self.width, dtype=np.int64) for _ in range(2))
        for indptr, features in self.rows():
            lengths = np.diff(indptr)
            np.add.at(counts, features, 1)
            np.add.at(pairs, features, np.repeat(lengths - 1, lengths))
        return counts, pairs

    def pairs(self, units: range) -> tuple[np.ndarray, np.ndarray]:
        """Return what the pairs of some units count together, as a multiple of 1 / `one`.

        Returns:
            The pairs, each as position of the unit x width + feature, ascending int64 [P], and the sum of
            each, int64 [P].
        """
        pending = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        num_pending = 0
        for indptr, features in self.rows(units):
            for keys, amounts in _paired(indptr, features, units, self.width, self.order):
                pending.append((keys, amounts))
                num_pending += len(keys)
                if num_pending > COUNTED_PAIRS:
                    pending, num_pending = [_summed(pending)], 0
        return _summed(pending)


def _are_in(units: range, features: np.ndarray) -> np.ndarray:
    """Return which features are some of the units, bool [Z]."""
    places = features - units.start
    return np.asarray((places >= 0) & (features < units.stop) & (places % units.step == 0))


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
    pairs: tuple[np.ndarray, np.ndarray], one: int, units: range, counts: np.ndarray, number: int, first: int
) -> Neighbours:
    """Return the neighbours of a block of units, the first of which has the position `first`."""
    keys, sums = pairs
    positions, features = np.divmod(keys, len(counts))
    both = sums / one
    order = np.lexsort((features, -(both * both / counts[features]), positions))
    begins = np.searchsorted(positions, np.arange(len(units)))
    ranks = np.empty(len(positions), np.int32)
    ranks[order] = np.arange(len(order)) - begins[positions]  # `order` sorts by position first, as keys are
    kept = np.flatnonzero(ranks < number)
    own = counts[units.start + positions * units.step]
    similarities = (both / np.sqrt(counts[features].astype(np.float64) * own)).astype(np.float32)
    return Neighbours(first + positions[kept], features[kept], similarities[kept], ranks[kept], counts)


def _paired(
    indptr: np.ndarray, features: np.ndarray, units: range, width: int, order: Order
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pairs of some examples and what each counts, in any order, a piece at a time."""
    own = np.flatnonzero(_are_in(units, features))
    examples = np.searchsorted(indptr, own, side="right") - 1
    starts, lengths = indptr[examples], indptr[examples + 1] - indptr[examples]
    for start, stop in _blocks(lengths, COUNTED_PAIRS // _PIECES):
        piece = lengths[start:stop]
        before = np.cumsum(piece) - piece
        others = np.arange(int(piece.sum())) + np.repeat(starts[start:stop] - before, piece)
        entries = np.repeat(own[start:stop], piece)
        stays = others < entries if order == "forward" else others != entries
        entries, others = entries[stays], others[stays]
        keys = (features[entries] - units.start) // units.step * width + features[others]
        near = np.abs(entries - others)
        yield keys, np.ones_like(near) if order == "ignore" else _ONE_IN_ORDER // near


def _summed(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Add the amounts of equal keys."""
    keys, amounts = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
    order = ascending(keys.astype(np.uint64))
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[starts], np.add.reduceat(amounts[order], starts) if len(starts) else amounts
