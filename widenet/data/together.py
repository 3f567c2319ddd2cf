"""Which features of a field occur together in training examples: sums of whole numbers, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.rules import check_indices
from widenet.plan.tiles import COUNTED_PAIRS
from widenet.spec.layers import Order

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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
    `COUNTED_PAIRS` pairs, or of those of one unit if it alone has more.

    Args:
        dataset: The examples.
        field: A sparse field, or a sequence, of which each feature counts once.
        units: Ascending features of this field; those from its width on occur with none.
        number: Largest number of neighbours of a unit.
        order: How places in a sequence count, as in `spec.layers.Neighbourhood`.
    """
    from scipy.sparse import csr_array  # rankings load this module, and seldom count

    width = dataset.field(field).width
    named = units[: len(range(units.start, width, units.step))]
    counts, pairs = (np.zeros(width, dtype=np.int64) for _ in range(2))
    for indptr, features in _examples(dataset, field):
        lengths = np.diff(indptr)
        np.add.at(counts, features, 1)
        np.add.at(pairs, features, np.repeat(lengths - 1, lengths))
    ends = np.cumsum(pairs[named.start : width : named.step])
    found, start = [_nearest(csr_array((0, width), dtype=np.int64), named[:0], 0, counts, number, 1)], 0
    while start < len(named):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + COUNTED_PAIRS, side="right")))
        own = named[start:stop]
        sums = csr_array((len(own), width), dtype=np.int64)
        for indptr, features in _examples(dataset, field):
            sums += _together(indptr, features, own, width, order)
        found.append(_nearest(sums, own, start, counts, number, 1 if order == "ignore" else _ONE_IN_ORDER))
        start = stop
    positions, features, similarities, ranks = map(np.concatenate, zip(*found, strict=True))
    return Neighbours(positions, features, similarities, ranks, counts)


def _examples(dataset: Dataset, field: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield row starts, int64 [E + 1], and features, int64 [Z], of which each example has one once."""
    place = f"{dataset.path}: field {field!r}"
    for batch in dataset.record_batches():
        lists = batch.column(field)
        features, lengths = lists.flatten().to_numpy().astype(np.int64), np.diff(lists.offsets.to_numpy())
        check_indices(features, dataset.field(field).width, place)
        if dataset.field(field).kind == "sequence":
            examples = np.repeat(np.arange(len(lists)), lengths)
            _, from_end = np.unique((examples << 32 | features)[::-1], return_index=True)
            last = np.sort(len(features) - 1 - from_end)
            features, lengths = features[last], np.bincount(examples[last], minlength=len(lists))
        yield np.concatenate([[0], np.cumsum(lengths)]), features


def _together(indptr: np.ndarray, features: np.ndarray, own: range, width: int, order: Order) -> "csr_array":
    """Return what the pairs of some units and all features count, in order by 1 / `_ONE_IN_ORDER`."""
    from scipy.sparse import coo_array, csr_array

    matrix = csr_array((np.ones(len(features), np.int64), features, indptr), (len(indptr) - 1, width))
    if order == "ignore":
        return matrix[:, own.start : own.stop : own.step].T @ matrix
    places = features - own.start
    entries = np.flatnonzero((places >= 0) & (features < own.stop) & (places % own.step == 0))
    examples = np.searchsorted(indptr, entries, side="right") - 1
    lengths = np.diff(indptr)[examples]
    others = np.arange(lengths.sum()) + np.repeat(indptr[examples] - np.cumsum(lengths) + lengths, lengths)
    entries = np.repeat(entries, lengths)
    stays = others < entries if order == "forward" else others != entries
    entries, others = entries[stays], others[stays]
    amounts = _ONE_IN_ORDER // np.abs(entries - others)
    return coo_array((amounts, (places[entries] // own.step, features[others])), (len(own), width)).tocsr()


def _nearest(
    sums: "csr_array", own: range, first: int, counts: np.ndarray, number: int, one: int
) -> tuple[np.ndarray, ...]:
    """Return the columns of `Neighbours` for some units, the first of which has the position `first`."""
    sums.sort_indices()
    positions, features = sums.tocoo().coords
    units = own.start + positions.astype(np.int64) * own.step
    others = features != units
    positions, features, units = positions[others], features[others].astype(np.int64), units[others]
    both = sums.data[others] / one
    order = np.lexsort((features, -(both * both / counts[features]), positions))
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order)) - np.searchsorted(positions, positions)
    kept = ranks < number
    similarities = (both / np.sqrt(counts[features].astype(np.float64) * counts[units])).astype(np.float32)
    return first + positions[kept].astype(np.int64), features[kept], similarities[kept], ranks[kept]
