"""What the page of a dataset shows: counts, and the ends of its times."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.description import Spread, counts
from widenet.data.manifest import Part, time_column
from widenet.data.selection import LATEST_SECOND
from widenet.pictures.html import brief

_MOST_RANKS = 120
_DATASETS = 8
_A_FEW_YEARS = 10**8
"""Seconds: smaller numbers are perhaps days or years."""


@dataclass(frozen=True)
class PartFacts:
    """One part of a field.

    Attributes:
        field: The field.
        part: The part.
        activity: Entries of the examples.
        popularity: Entries of the features.
        ranks: Rank from 1 and entries of features, from the most to the fewest, at most `_MOST_RANKS`.
        lengths: Shares of the examples by their number of entries, which double from group to group.
        ends: When the oldest and the newest entry are; None without times.
    """

    field: str
    part: Part
    activity: Spread
    popularity: Spread
    ranks: list[tuple[float, float]]
    lengths: dict[str, float]
    ends: tuple[str, str] | None


class _Key:
    """A dataset, equal to another with the same examples at the same place."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.key = dataset, (dataset.path, dataset.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def facts_of(dataset: Dataset) -> list[PartFacts]:
    """Return the facts of every part that is not dense; the entries of a dataset are read once."""
    return _facts(_Key(dataset))


@lru_cache(_DATASETS)
def _facts(key: _Key) -> list[PartFacts]:
    return list(_read(key.dataset))


def _read(dataset: Dataset) -> Iterator[PartFacts]:
    for part in counts(dataset.path, dataset.manifest):
        yield PartFacts(
            part.field,
            part.part,
            Spread.of(part.examples),
            Spread.of(part.features),
            _ranks(part.features),
            _lengths(part.examples),
            _ends(dataset, part.field, part.part),
        )


def _ranks(features: np.ndarray) -> list[tuple[float, float]]:
    falling = np.sort(features[features > 0])[::-1]
    if not len(falling):
        return []
    places = np.unique(np.geomspace(1, len(falling), _MOST_RANKS).astype(np.int64))
    return [(float(place), float(falling[place - 1])) for place in places]


def _lengths(examples: np.ndarray) -> dict[str, float]:
    """Shares of examples with 0, 1, 2 to 3, 4 to 7 entries, and so on."""
    if not len(examples):
        return {}
    groups = np.bincount(np.frexp(examples.astype(np.float64))[1])
    names = ["0", "1", *(f"{2**power:,} to {2 ** (power + 1) - 1:,}" for power in range(1, len(groups)))]
    return {name: number / len(examples) for name, number in zip(names, groups.tolist(), strict=False)}


def _ends(dataset: Dataset, field: str, part: Part) -> tuple[str, str] | None:
    if not dataset.field(field).has_times:
        return None
    ends = [
        pc.min_max(batch.column(time_column(field, part)).flatten()).as_py()
        for batch in dataset.record_batches()
    ]
    known = [(end["min"], end["max"]) for end in ends if end["min"] is not None]
    if not known:
        return None
    return _moment(min(low for low, _ in known)), _moment(max(high for _, high in known))


def _moment(number: float) -> str:
    """Return seconds since 1970 as a day of UTC, and any other number, such as days or years, as it is."""
    is_second = _A_FEW_YEARS <= number <= LATEST_SECOND
    return time.strftime("%Y-%m-%d", time.gmtime(number)) if is_second else brief(number)
