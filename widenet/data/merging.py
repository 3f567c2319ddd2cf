"""From the rows of all sources to the entries of examples: each part merged bucket by bucket, users and items numbered."""

import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.buckets import Buckets, arrange, entries, in_order, merge
from widenet.data.manifest import Part
from widenet.data.sources import Sources
from widenet.data.tables import Tables
from widenet.errors import DataError


class Merging:
    """The entries of all parts; adds what was read and dropped to the facts of `tables`.

    min_value: the least value of an interaction that stays, or None.
    sequence: whether users have sequences, in which every row stays, instead of sets of items.
    folder: for the buckets. threads: how many buckets are worked on at a time; of each, memory holds about 100 bytes a row.
    Raises DataError when no interaction is left for training.
    """

    def __init__(
        self, tables: Tables, parts: Mapping[Part, Sources], folder: Path, min_value: float | None, threads: int, sequence: bool = False
    ) -> None:
        self._sequence = sequence
        self._tables, self._parts, self._folder = tables, parts, folder
        self._min_value, self._threads = min_value, threads
        if not self._merged(again=False):
            self._merged(again=True)
        if not self._num_train.any():
            raise self._nothing_left()
        self.num_features = int(self._items_stay.sum())
        self._feature_of = tables.number_features(self._items_stay, self._num_train)
        self._example_of = None if self._users_stay.all() else np.cumsum(self._users_stay) - 1

    def _merged(self, again: bool) -> bool:
        """Merge with the users as they are numbered now; gives whether the examples have the same order."""
        num_users, num_items, self._num_buckets = self._tables.number(again)
        self._buckets = {part: self._filled(part, sources) for part, sources in self._parts.items()}
        self._users_stay = np.full(num_users, self._min_value is None)
        self._items_stay = np.zeros(num_items, dtype=bool)
        self._num_train = np.zeros(num_items, dtype=np.int64)
        counts = {part: np.zeros(3, dtype=np.int64) for part in self._parts}
        work = partial(arrange if self._sequence else merge, self._buckets, least=self._min_value)
        for found in in_order(work, range(self._num_buckets), self._threads):
            for part, merged in found.items():
                self._users_stay[merged.users] = True
                self._items_stay[merged.items] = True
                if part == "train":
                    np.add.at(self._num_train, merged.items, 1)
                counts[part] += (merged.num_pairs, merged.num_below, merged.num_taken)
        self._tell(counts)
        return self._tables.keep(self._users_stay)

    def _filled(self, part: Part, sources: Sources) -> Buckets:
        shutil.rmtree(self._folder / part, ignore_errors=True)
        buckets = Buckets(self._folder / part)
        if buckets.add(self._tables.rows(part, sources)) != self._tables.num_rows(part):
            raise DataError(f"{sources.names}: must not change while it is read; it did. Ingest again.")
        return buckets

    def _tell(self, counts: Mapping[Part, np.ndarray]) -> None:
        facts = self._tables.facts
        for part, (num_pairs, num_below, _) in counts.items():
            num_rows = self._tables.num_rows(part)
            facts[f"{part}_rows_read"] = num_rows
            facts[f"{part}_duplicates_merged"] = num_rows - int(num_pairs)
            facts[f"{part}_below_min_value"] = int(num_below)
        facts["heldout_already_in_train"] = int(counts["heldout"][2])

    def _nothing_left(self) -> DataError:
        below = self._tables.facts["train_below_min_value"]
        why = f"all {below:,} are below --min-value {self._min_value:g}. Lower it." if below else "there is none. Check the file."
        return DataError(f"{self._parts['train'].first}: at least one interaction must be left; {why}")

    def entries(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The entries of a part: example, feature, value, in order."""

        def of(number: int) -> pa.RecordBatch:
            return entries(self._buckets[part].rows(number), self._example_of, self._feature_of, self._sequence)

        return in_order(of, range(self._num_buckets), self._threads)
