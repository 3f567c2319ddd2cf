"""Tells whether the items of sequences stand in an order that looks random; does not load torch."""

import math

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.messages import Note
from widenet.randomness import stream

_MOST_ENTRIES = 2**19
"""Entries of the examples that are looked at; they are spread evenly over the dataset."""
_SHUFFLES = 8
_DEVIATIONS = 2
"""Standard deviations of a shuffle by which the true difference may be larger than the one that was seen."""
_MOST_NATS, _LARGEST_SHARE = 0.015, 0.02
"""Largest difference that counts as none: for each pair, and as a share of that of shuffled sequences."""


def note_on_random_order(dataset: Dataset, field: str) -> Note | None:
    """Return a note if the order of a field's sequences looks random; None otherwise, or if nobody can tell.

    Args:
        dataset: The dataset.
        field: A field of sequences.
    """
    if not looks_random(dataset, field):
        return None
    words = dataset.manifest.words
    return Note(
        f"note: the order of each {words.example}'s {words.feature(field)}s looks random:"
        " shuffled sequences have the same pairs of neighbours as often. A dataset without `sequence=True`"
        " may give a better model"
    )


def looks_random(dataset: Dataset, field: str) -> bool:
    """Return whether neighbours in the sequences of a field say as little as they do after shuffling.

    Every order that a network can learn from neighbours makes some pairs of them frequent: a direction, but
    also sessions whose neighbours belong together, and tastes that change. So the entropy of ordered pairs is
    smaller than in shuffled sequences. If the difference is surely small, the order looks random. With few
    pairs, or pairs that hardly ever repeat, nothing is sure.

    Args:
        dataset: The dataset, of which at most `_MOST_ENTRIES` entries are in memory.
        field: A field of sequences.
    """
    items, starts = dataset.entries(field, _examples(dataset, field))
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    num_pairs = int((rows[1:] == rows[:-1]).sum())
    random, width = stream(0, "order of sequences"), dataset.field(field).width
    shuffles = [
        _repetition(rows, items[np.argsort(rows + random.random(len(rows)), kind="stable")], width)
        for _ in range(_SHUFFLES)
    ]
    mean = math.fsum(shuffles) / _SHUFFLES
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in shuffles) / (_SHUFFLES - 1))
    most = abs(_repetition(rows, items, width) - mean) + _DEVIATIONS * deviation
    return deviation > 0 and most < min(_MOST_NATS * num_pairs, _LARGEST_SHARE * mean)


def _examples(dataset: Dataset, field: str) -> np.ndarray:
    """Return examples that are spread evenly, int64, without those of more than a 64th of all entries."""
    stride = max(1, -(-dataset.field(field).num_entries["train"] // _MOST_ENTRIES))
    examples = np.arange(0, dataset.num_examples, stride)
    lengths = dataset.entry_counts(field, examples)
    examples, lengths = (each[lengths <= _MOST_ENTRIES // 64] for each in (examples, lengths))
    return examples[np.cumsum(lengths) <= _MOST_ENTRIES]


def _repetition(rows: np.ndarray, items: np.ndarray, width: int) -> float:
    """Return c ln c, summed over the ordered pairs of neighbours, each of which occurs c times.

    For equally many pairs, it is larger by as many nats as their entropy, times their number, is smaller.

    Args:
        rows: Example of each item, int64 [Z], ascending.
        items: Items uint32 [Z], each below `width`.
        width: Number of items that there are, at most 2^32.
    """
    follow = rows[1:] == rows[:-1]
    before, after = (part[follow].astype(np.uint64) for part in (items[:-1], items[1:]))
    _, counts = np.unique(before * np.uint64(width) + after, return_counts=True)
    sizes, numbers = np.unique(counts, return_counts=True)
    pairs = zip(sizes.tolist(), numbers.tolist(), strict=True)
    return math.fsum(number * size * math.log(size) for size, number in pairs)
