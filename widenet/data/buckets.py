"""Interactions on disk, in buckets of users that are sorted, merged and divided one by one.

DuckDB does the same in SQL within the same memory, but takes 1.3 to 2.2 times as long: `python -m benchmarks
ingest` measures both.
"""

import math
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import Part
from widenet.data.selection import Selection

ROWS_PER_BUCKET = 2**19
"""Rows of a bucket, not counting further rows of its last user."""
BYTES_PER_BUCKET = 120 * ROWS_PER_BUCKET
"""Peak memory of merging one bucket, in bytes."""

_ITEM_BITS = np.uint64(32)
_LAST = np.uint64(2**64 - 1)
_TYPES = {"key": np.uint64, "value": np.float64, "time": np.float64}

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Rows:
    """R interactions.

    Attributes:
        key: user * 2^32 + item, uint64 [R].
        value: float64 [R]; None if the source has none.
        time: float64 [R]; None if the source has none.
    """

    key: np.ndarray
    value: np.ndarray | None = None
    time: np.ndarray | None = None

    def of(self, chosen: np.ndarray) -> "Rows":
        """The rows that an index array or a mask selects."""
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

    def merged(self, duplicates: Duplicates) -> "Rows":
        """Merge the rows of each (user, item), and sort by key; see docs/data.md for the rules.

        Without values, each row counts 1 in a sum.
        """
        order = ascending(self.key)
        key = self.key[order]
        last = np.ones(len(key), dtype=bool)
        last[:-1] = key[1:] != key[:-1]
        if not last.all():
            several = ~last
            several[1:] |= several[:-1]
            rows = order[several]
            order[several] = rows[np.lexsort([*self._ranking(rows, duplicates), self.key[rows]])]
        return self._summed(order, last) if duplicates == "sum" else self.of(order[last])

    def _ranking(self, rows: np.ndarray, duplicates: Duplicates) -> list[np.ndarray]:
        """Sort keys of rows with the same pair, the most important one last; the largest row is kept."""
        value = [] if self.value is None else [~np.signbit(self.value[rows]), self.value[rows]]
        time = [] if self.time is None else [-self.time[rows] if duplicates == "first" else self.time[rows]]
        return [*time, *value] if duplicates in ("max", "sum") else [*value, *time]

    def _summed(self, order: np.ndarray, last: np.ndarray) -> "Rows":
        """The sum of each pair's values, with its latest time.

        Args:
            order: Indices of the rows, sorted by pair, int64 [R].
            last: Whether a sorted row is the last of its pair, bool [R].
        """
        if not len(order):
            return self
        starts = np.flatnonzero(np.concatenate([[True], last[:-1]]))
        value = np.ones(len(order)) if self.value is None else self.value[order]
        time = None if self.time is None else np.maximum.reduceat(self.time[order], starts)
        return Rows(self.key[order[starts]], np.add.reduceat(value, starts), time)

    def in_sequence(self) -> "Rows":
        """All rows by user, then by time; rows with equal times, or without times, keep their order."""
        user = self.user.astype(np.uint64)
        if self.time is None:
            return self.of(ascending(user))
        by_time = np.argsort(self.time, kind="stable")
        return self.of(by_time[ascending(user[by_time])])

    def num_equal(self) -> int:
        """Number of rows that equal an earlier one in user, item and time; 0 if the rows have no times.

        Rows must ascend by user and then by time.
        """
        if self.time is None:
            return 0
        again = (np.diff(self.user, prepend=-1) == 0) & (np.diff(self.time, prepend=math.nan) == 0)
        again[:-1] |= again[1:]
        rows = np.rec.fromarrays([self.key[again], self.time[again]])
        return len(rows) - len(np.unique(rows))


def ascending(key: np.ndarray) -> np.ndarray:
    """Indices that sort keys, uint64 [R], in a stable way: int64 [R].

    A radix sort by 16 bits at a time, for which numpy is fast; it skips digits that are 0 in all keys.
    """
    order = np.arange(len(key))
    first_user = key.min(initial=_LAST) >> _ITEM_BITS << _ITEM_BITS
    for digit in (key - first_user).astype("<u8").view("<u2").reshape(-1, 4).T:
        if digit.any():
            order = order[np.argsort(digit[order], kind="stable")]
    return order


class Buckets:
    """The rows of one part in files of a new folder; a bucket has all rows of its users, who ascend."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._folder = folder

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append rows in any order.

        The batches have the columns `bucket` (uint16) and `key`, and perhaps `value` and `time`.
        """
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

    def replace(self, number: int, rows: Rows) -> None:
        """Replace the rows of a bucket."""
        for name in _TYPES:
            self._file(number, name).unlink(missing_ok=True)
            if (column := getattr(rows, name)) is not None:
                self._file(number, name).write_bytes(column.data)

    def rows(self, number: int) -> Rows:
        """The rows of a bucket, which may be empty."""
        columns = {}
        for name, dtype in _TYPES.items():
            path = self._file(number, name)
            if path.exists():
                columns[name] = np.fromfile(path, dtype)
        return Rows(**columns) if columns else Rows(np.zeros(0, np.uint64))

    def _file(self, number: int, name: str) -> Path:
        return self._folder / f"{number}.{name}"


@dataclass(frozen=True)
class Merge:
    """The rows of a part in a bucket, each pair once.

    Attributes:
        key: As in `Rows`.
        stays: Whether the value of each is large enough, bool [R].
        counts: Numbers of rows: `outside` the times, `repeated`, `below` the smallest value, `in_train` if
            the train part has the pair too, and `equal` to an earlier row of the same sequence.
    """

    key: np.ndarray
    stays: np.ndarray
    counts: Counter[str]


def merge(parts: Mapping[Part, Buckets], number: int, selection: Selection) -> dict[Part, Merge]:
    """Merge the rows of a bucket, and drop those outside the times or with too small a value.

    All rows of a sequence stay, in their order. So do all rows that `settle` divides, which merges them.
    """
    merges: dict[Part, Merge] = {}
    in_train = np.zeros(0, np.uint64)
    for part, buckets in parts.items():
        rows = buckets.rows(number)
        inside = rows
        if rows.time is not None and selection.has_window:
            inside = rows.of((rows.time >= selection.since) & (rows.time < selection.until))
        pairs = inside.in_sequence() if selection.sequence else inside.merged(selection.duplicates)
        stays = _are_large(pairs, selection)
        kept = pairs.of(stays)
        buckets.replace(number, inside if part == "train" and selection.merges_last else kept)
        if part == "train" and not selection.sequence:
            in_train = kept.key
        counts = Counter(
            outside=len(rows.key) - len(inside.key),
            repeated=len(inside.key) - len(pairs.key),
            below=len(pairs.key) - len(kept.key),
            in_train=0 if part == "train" else _num_common(kept.key, in_train),
            equal=kept.num_equal() if selection.sequence else 0,
        )
        merges[part] = Merge(pairs.key, stays, counts)
    return merges


def settle(
    parts: Mapping[Part, Buckets], number: int, selection: Selection, users: np.ndarray, items: np.ndarray
) -> dict[Part, Merge]:
    """Drop the rows of users and items that do not stay, and move rows that are set aside by time.

    A pair with rows on both sides of a time is in both parts.

    Args:
        parts: The buckets of each part.
        number: Number of the bucket.
        selection: Which rows to set aside.
        users: Whether a user stays, bool [users].
        items: Whether an item stays, bool [items].
    """
    of_parts: dict[Part, Rows] = {}
    for part, buckets in parts.items():
        rows = buckets.rows(number)
        of_parts[part] = rows.of(users[rows.user] & items[rows.item])
    train = of_parts["train"]
    if selection.divided and len(train.key):
        owners = owners_of(train, selection)
        for place, part in enumerate(("train", *selection.divided)):
            of_parts[part] = pairs_of(train.of(owners == place), selection)
    merges = {}
    for part, rows in of_parts.items():
        parts[part].replace(number, rows)
        is_counted = part != "train" and not selection.sequence
        in_train = _num_common(rows.key, of_parts["train"].key) if is_counted else 0
        merges[part] = Merge(rows.key, np.ones(len(rows.key), bool), Counter(in_train=in_train))
    return merges


def _are_large(rows: Rows, selection: Selection) -> np.ndarray:
    """Whether the value of each row is large enough, bool [R]."""
    if selection.min_value is None or rows.value is None:
        return np.ones(len(rows.key), bool)
    return np.asarray(rows.value >= selection.min_value)


def _num_common(keys: np.ndarray, others: np.ndarray) -> int:
    """Count the keys that are among others; none occurs twice."""
    if not len(keys) or not len(others):
        return 0
    return int(np.isin(keys, others, assume_unique=True).sum())


def pairs_of(rows: Rows, selection: Selection) -> Rows:
    """The pairs among the rows of a bucket after `merge`; for sequences, the rows themselves."""
    if not selection.merges_last:
        return rows
    pairs = rows.merged(selection.duplicates)
    return pairs.of(_are_large(pairs, selection))


def owners_of(rows: Rows, selection: Selection) -> np.ndarray:
    """The part of each row, int64 [R]: 0 for train, 1 for the first of `selection.divided`, and so on.

    Rows must have times, or be those of a sequence in its order. A part that is set aside by number leaves
    at least one item of each user for training.
    """
    owners = np.zeros(len(rows.key), dtype=np.int64)
    for number, part in enumerate(selection.divided, start=1):
        left = np.flatnonzero(owners == 0)
        moves = _are_last if part in selection.last else _are_late
        owners[left[moves(rows.of(left), part, selection)]] = number
    return owners


def _are_late(rows: Rows, part: Part, selection: Selection) -> np.ndarray:
    """Whether each row is at or after the time of a part, bool [R]."""
    assert rows.time is not None
    return np.asarray(rows.time >= selection.from_time[part])


def _are_last(rows: Rows, part: Part, selection: Selection) -> np.ndarray:
    """Whether each row is at or after its user's last items, by time and then by item, bool [R].

    An item is as late as its newest row, so an earlier row of a last item may stay.
    """
    if selection.sequence:
        order = np.arange(len(rows.key))
        last_equal, is_newest = order, np.ones(len(order), dtype=bool)
    else:
        assert rows.time is not None
        order = np.lexsort([rows.key, rows.time, rows.user])
        key, time = rows.key[order], rows.time[order]
        differs = np.append((key[1:] != key[:-1]) | (time[1:] != time[:-1]), True)
        last_equal = np.flatnonzero(differs)[np.cumsum(differs) - differs]
        newest = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
        is_newest = np.zeros(len(key), dtype=bool)
        is_newest[newest] = np.isin(key[newest], pairs_of(rows, selection).key, assume_unique=True)
    user = rows.user[order]
    owner = np.cumsum(np.diff(user, prepend=-1) > 0) - 1
    num_items = np.bincount(owner[is_newest], minlength=len(owner))
    num_later = (num_items.cumsum()[owner] - np.cumsum(is_newest))[last_equal]
    moves = np.empty(len(order), dtype=bool)
    moves[order] = num_later < np.minimum(selection.last[part], num_items[owner] - 1)
    return moves


def entries(
    rows: Rows,
    example_of: np.ndarray | None = None,
    feature_of: np.ndarray | None = None,
    *,
    sequence: bool = False,
    has_times: bool = False,
) -> pa.RecordBatch:
    """The entries of a bucket, sorted by example and feature; those of a sequence keep its order.

    Args:
        rows: The rows of the bucket.
        example_of: The example of each user, int64 [users]; None if the numbers are the same.
        feature_of: The feature of each item, uint32 [items]; None if the numbers are the same.
        sequence: Whether the field is a sequence.
        has_times: Whether to add the times.

    Returns:
        The columns example, feature, value, and perhaps time.
    """
    example = rows.user if example_of is None else example_of[rows.user]
    feature = rows.item if feature_of is None else feature_of[rows.item]
    value = np.ones(len(feature), np.float32) if rows.value is None else rows.value.astype(np.float32)
    key = example.astype(np.uint64) if sequence else (example.astype(np.uint64) << _ITEM_BITS) | feature
    columns = {"example": example, "feature": feature, "value": value}
    if has_times:
        # A bucket without rows has no times either.
        columns["time"] = np.zeros(0) if rows.time is None else rows.time
    if not (key[1:] >= key[:-1]).all():
        order = ascending(key)
        columns = {name: column[order] for name, column in columns.items()}
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns.values()], list(columns))


def in_order(work: Callable[[_Task], _Done], tasks: Iterable[_Task], threads: int) -> Iterator[_Done]:
    """Yield `work(task)` for each task in order; at most `threads` are running or waiting to be taken."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Done]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) == threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
