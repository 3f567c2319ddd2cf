"""Interactions out of core: rows on disk in buckets of users, each sorted and merged by itself."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from widenet.data.manifest import Part

ROWS_PER_BUCKET = 2**19
"""Rows of a bucket, but for those of the user who fills it: memory grows with this, never with the number of rows."""

_ITEM_BITS = np.uint64(32)
_LAST = np.uint64(2**64 - 1)
_TYPES = {"key": np.uint64, "value": np.float64, "time": np.float64}

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Rows:
    """Some rows: `key` is user * 2^32 + item, uint64 [R]; `value` and `time` are float64 [R], or None where nothing was read."""

    key: np.ndarray
    value: np.ndarray | None = None
    time: np.ndarray | None = None

    def of(self, chosen: np.ndarray) -> "Rows":
        """The rows that an index array or a mask chooses."""
        value, time = (None if column is None else column[chosen] for column in (self.value, self.time))
        return Rows(self.key[chosen], value, time)

    @property
    def user(self) -> np.ndarray:
        """The number of each row's user, int64 [R]."""
        return (self.key >> _ITEM_BITS).astype(np.int64)

    @property
    def item(self) -> np.ndarray:
        """The number of each row's item, uint32 [R]."""
        return self.key.astype(np.uint32)

    def merged(self) -> "Rows":
        """Each (user, item) once, ascending: its row of the last time, and of these the one of the largest value."""
        order = ascending(self.key)
        key = self.key[order]
        last = np.ones(len(key), dtype=bool)
        last[:-1] = key[1:] != key[:-1]
        if not last.all() and self.value is not None:
            several = ~last
            several[1:] |= several[:-1]
            rows = order[several]
            ways = [self.value[rows], self.key[rows]] if self.time is None else [self.value[rows], self.time[rows], self.key[rows]]
            order[several] = rows[np.lexsort([~np.signbit(ways[0]), *ways])]
        return self.of(order[last])

    def in_sequence(self) -> "Rows":
        """All rows, user by user, each user's by time; of equal times, and where no time was read, as they are."""
        user = self.user.astype(np.uint64)
        if self.time is None:
            return self.of(ascending(user))
        by_time = np.argsort(self.time, kind="stable")
        return self.of(by_time[ascending(user[by_time])])


def ascending(key: np.ndarray) -> np.ndarray:
    """The order in which keys, uint64 [R], ascend, equal ones as they were: int64 [R].

    A radix sort by 16 bits at a time, which numpy does fast; bits that are the same in all keys cost nothing.
    """
    order = np.arange(len(key))
    first_user = key.min(initial=_LAST) >> _ITEM_BITS << _ITEM_BITS
    for digit in (key - first_user).astype("<u8").view("<u2").reshape(-1, 4).T:
        if digit.any():
            order = order[np.argsort(digit[order], kind="stable")]
    return order


class Buckets:
    """The rows of one part, in files of a folder: a bucket holds all rows of its users, and buckets ascend by user."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def add(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Append rows of the columns `bucket` (uint16) and `key`, perhaps `value`, `time`, in any order; gives their number."""
        num_rows = 0
        for batch in batches:
            bucket = batch.column("bucket").to_numpy()
            order = np.argsort(bucket, kind="stable")
            lengths = np.bincount(bucket)
            numbers, stops = np.flatnonzero(lengths).tolist(), np.cumsum(lengths)
            for name in batch.schema.names[1:]:
                column = batch.column(name).to_numpy()[order]
                for number in numbers:
                    with self._file(number, name).open("ab") as file:
                        file.write(column[stops[number] - lengths[number] : stops[number]].data)
            num_rows += batch.num_rows
        return num_rows

    def replace(self, number: int, rows: Rows) -> None:
        """Let these be the rows of a bucket."""
        for name in _TYPES:
            self._file(number, name).unlink(missing_ok=True)
            if (column := getattr(rows, name)) is not None:
                self._file(number, name).write_bytes(column.data)

    def rows(self, number: int) -> Rows:
        """The rows of a bucket; none where none were added."""
        files = {name: self._file(number, name) for name in _TYPES}
        found = {name: np.fromfile(path, kind) for (name, path), kind in zip(files.items(), _TYPES.values(), strict=True) if path.exists()}
        return Rows(**found) if found else Rows(np.zeros(0, np.uint64))

    def _file(self, number: int, name: str) -> Path:
        return self._folder / f"{number}.{name}"


@dataclass(frozen=True)
class Merge:
    """What became of a part's rows in a bucket: the distinct users and, entry by entry, the items that stay; and what did not."""

    users: np.ndarray
    items: np.ndarray
    num_pairs: int
    num_below: int
    num_taken: int


def arrange(parts: Mapping[Part, Buckets], number: int, least: float | None) -> dict[Part, Merge]:
    """Put the rows of a bucket in the order of their sequences, and leave those whose value is at least `least`."""
    found: dict[Part, Merge] = {}
    for part, buckets in parts.items():
        rows = buckets.rows(number).in_sequence()
        kept = rows if least is None or rows.value is None else rows.of(rows.value >= least)
        buckets.replace(number, Rows(kept.key))
        found[part] = Merge(kept.user[np.diff(kept.user, prepend=-1) > 0], kept.item, len(rows.key), len(rows.key) - len(kept.key), 0)
    return found


def merge(parts: Mapping[Part, Buckets], number: int, least: float | None) -> dict[Part, Merge]:
    """Leave in a bucket each pair once, where its value is at least `least`: in the first part that has it."""
    found: dict[Part, Merge] = {}
    taken = np.zeros(0, np.uint64)
    for part, buckets in parts.items():
        pairs = buckets.rows(number).merged()
        kept = pairs if least is None or pairs.value is None else pairs.of(pairs.value >= least)
        new = kept.of(~np.isin(kept.key, taken, assume_unique=True)) if len(taken) else kept
        buckets.replace(number, Rows(new.key, new.value))
        counts = len(pairs.key), len(pairs.key) - len(kept.key), len(kept.key) - len(new.key)
        found[part] = Merge(new.user[np.diff(new.user, prepend=-1) > 0], new.item, *counts)
        taken = new.key
    return found


def entries(rows: Rows, example_of: np.ndarray | None, feature_of: np.ndarray, sequence: bool = False) -> pa.RecordBatch:
    """The entries of a bucket: example, feature, value, ascending by example and feature; of sequences by example, in their order.

    example_of: int64 [users], or None where they are the same; feature_of: uint32 [items].
    """
    example = rows.user if example_of is None else example_of[rows.user]
    feature = feature_of[rows.item]
    value = np.ones(len(feature), np.float32) if rows.value is None else rows.value.astype(np.float32)
    key = example.astype(np.uint64) if sequence else (example.astype(np.uint64) << _ITEM_BITS) | feature
    if not (key[1:] >= key[:-1]).all():
        order = ascending(key)
        example, feature, value = example[order], feature[order], value[order]
    return pa.RecordBatch.from_arrays([pa.array(example), pa.array(feature), pa.array(value)], ["example", "feature", "value"])


def in_order(work: Callable[[_Task], _Done], tasks: Iterable[_Task], threads: int) -> Iterator[_Done]:
    """What the work gives for each task, in the order of the tasks; no more than `threads` are under way or wait to be taken."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Done]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) == threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
