"""Turns the rows of all sources into entries of examples: merges each part bucket by bucket."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.buckets import (
    Buckets,
    Merge,
    Rows,
    entries,
    in_order,
    merge,
    pairs_of,
    settle,
)
from widenet.data.manifest import Part
from widenet.data.selection import Selection
from widenet.data.source import Sources
from widenet.data.tables import Tables
from widenet.errors import DataError


class Merging:
    """The merged entries of all parts; adds the numbers of rows read and dropped to the facts of `tables`.

    Args:
        tables: The tables of users and items.
        sources: The sources of each part.
        folder: Folder for the buckets.
        selection: Which interactions to keep, and in which parts.
        threads: Number of buckets that are processed at a time; each takes up to `BYTES_PER_BUCKET`.

    Raises:
        DataError: No interaction is left for training, or interactions repeat that must not.
    """

    def __init__(
        self,
        tables: Tables,
        sources: Mapping[Part, Sources],
        folder: Path,
        selection: Selection,
        threads: int,
    ) -> None:
        self._tables, self._sources, self._folder = tables, sources, folder
        self._threads = threads
        latest = {part: tables.latest(part) for part in sources} if selection.times else {}
        for part, time in latest.items():
            selection.check_seconds(time, f'{sources[part].names}: column "{sources[part].time_column}"')
        self._selection = selection.resolved(latest.get("train", 0.0))
        if not self._merged(again=False):
            self._merged(again=True)
        place = self._sources["train"].names
        dropping = [*self._selection.dropping, *self._selection.splits_by_time, None]
        rule = "must leave at least one interaction for training"
        DataError.require(self._num_train.any(), rule, place=place, option=dropping[0])
        for part in self._selection.from_time:
            rule = "must set something aside; no interaction is that late"
            DataError.require(self._num_of[part], rule, place=place, option=f"{part}_since")
        self.num_examples = int(self._users_stay.sum())
        self._feature_of = tables.number_features(self._items_stay, self._num_train)
        self._example_of = None if self._users_stay.all() else np.cumsum(self._users_stay) - 1

    def _merged(self, again: bool) -> bool:
        """Merge with the present numbers of users; returns whether these are in the order of the examples."""
        self._num_users, self._num_items, self._num_buckets = self._tables.number(again)
        self._buckets = {part: Buckets(self._folder / part) for part in self._sources}
        for part, buckets in self._buckets.items():
            rows = self._tables.rows(part, self._sources[part].numbers)
            buckets.add(self._tables.with_progress(rows, self._tables.num_rows(part)))
        counts = self._passed(partial(merge, self._buckets, selection=self._selection))
        self._tell(counts)
        if self._selection.has_minimums or self._selection.divided or self._selection.known_only:
            self._settle()
        return self._tables.keep(self._users_stay)

    def _passed(self, work: Callable[[int], dict[Part, Merge]]) -> dict[Part, Counter[str]]:
        """Process every bucket, note which users and items have interactions, and return counts of rows."""
        self._users_stay = np.full(self._num_users, not self._selection.dropping)
        self._items_stay = np.zeros(self._num_items, dtype=bool)
        self._num_train = np.zeros(self._num_items, dtype=np.int64)
        self._num_of: Counter[Part] = Counter()
        had_users, had_items = np.zeros_like(self._users_stay), np.zeros_like(self._items_stay)
        counts: dict[Part, Counter[str]] = {part: Counter() for part in self._buckets}
        for of_parts in in_order(work, range(self._num_buckets), self._threads):
            for part, merged in of_parts.items():
                rows, kept = Rows(merged.key), Rows(merged.key[merged.stays])
                had_users[rows.user] = True
                had_items[rows.item] = True
                self._users_stay[kept.user] = True
                self._items_stay[kept.item] = True
                if part == "train":
                    np.add.at(self._num_train, kept.item, 1)
                self._num_of[part] += len(kept.key)
                counts[part].update(merged.counts)
        emptied = had_users & ~self._users_stay, had_items & ~self._items_stay
        self._num_emptied = int(emptied[0].sum()), int(emptied[1].sum())
        return counts

    def _settle(self) -> None:
        """Drop unknown items and users and items below the minimums, and divide the rest by time."""
        facts, had_users, had_items = self._tables.facts, self._users_stay, self._items_stay
        if self._selection.known_only:
            unknown = had_items & ~self._tables.known_items(self._num_items)
            facts["items_not_in_vocabulary"] = int(unknown.sum())
            facts["train_interactions_not_in_vocabulary"] = int(self._num_train[unknown].sum())
            had_items = had_items & ~unknown
        users, items = np.ones_like(had_users), had_items
        if self._selection.has_minimums:
            num_before = int(self._num_train[had_items].sum())
            users, items, num_left = self._large_enough(had_items)
            facts["users_below_min_user_items"] = int((had_users & ~users).sum())
            facts["items_below_min_item_users"] = int((had_items & ~items).sum())
            facts["train_interactions_below_minimums"] = num_before - num_left
        for part in self._selection.divided:
            self._buckets[part] = Buckets(self._folder / part)
        counts = self._passed(
            partial(settle, self._buckets, selection=self._selection, users=users, items=items)
        )
        self._tell_repeated(counts)

    def _large_enough(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Find the largest sets of users and items in which each has enough of the other.

        The result does not depend on the order in which users and items are dropped. Each round reads all
        buckets once.

        Args:
            items: The items to start from, bool [items].

        Returns:
            The users and items that stay, bool [users] and bool [items], and the number of their rows.
        """
        users = np.ones(self._num_users, dtype=bool)
        while True:
            items_of_user, users_of_item = self._counts(users, items)
            stay_users = users & (items_of_user >= self._selection.min_user_items)
            stay_items = items & (users_of_item >= self._selection.min_item_users)
            if (stay_users == users).all() and (stay_items == items).all():
                return users, items, int(items_of_user.sum())
            users, items = stay_users, stay_items

    def _counts(self, users: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the train rows of each user and the users of each item, int64 [users] and int64 [items]."""
        items_of_user = np.zeros(self._num_users, dtype=np.int64)
        users_of_item = np.zeros(self._num_items, dtype=np.int64)
        for number in range(self._num_buckets):
            rows = pairs_of(self._buckets["train"].rows(number), self._selection)
            left = rows.of(users[rows.user] & items[rows.item])
            np.add.at(items_of_user, left.user, 1)
            pairs = Rows(np.unique(left.key)) if self._selection.sequence else left
            np.add.at(users_of_item, pairs.item, 1)
        return items_of_user, users_of_item

    def _tell(self, counts: Mapping[Part, Counter[str]]) -> None:
        facts = self._tables.facts
        for part in self._sources:
            facts[f"{part}_rows_read"] = self._tables.num_rows(part)
            if self._selection.has_window:
                facts[f"{part}_outside_since_and_until"] = counts[part]["outside"]
            facts[f"{part}_duplicates_merged"] = counts[part]["repeated"]
            facts[f"{part}_below_min_value"] = counts[part]["below"]
            if self._selection.sequence:
                facts[f"{part}_equal_rows_kept"] = counts[part]["equal"]
        if self._selection.min_value is not None:
            facts["users_below_min_value"], facts["items_below_min_value"] = self._num_emptied
        facts["heldout_already_in_train"] = 0
        self._tell_repeated(counts)

    def _tell_repeated(self, counts: Mapping[Part, Counter[str]]) -> None:
        """Note the pairs of other parts that the train part has too."""
        for part in counts:
            if part != "train" and (part == "heldout" or counts[part]["in_train"]):
                self._tables.facts[f"{part}_already_in_train"] = counts[part]["in_train"]

    def entries(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a part in order: example, feature, value, and the time if it is kept."""
        is_sequence, has_times = self._selection.sequence, self._selection.keep_times

        def work(number: int) -> pa.RecordBatch:
            rows = self._buckets[part].rows(number)
            return entries(
                rows, self._example_of, self._feature_of, sequence=is_sequence, has_times=has_times
            )

        return in_order(work, range(self._num_buckets), self._threads)
