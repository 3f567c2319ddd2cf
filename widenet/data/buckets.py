"""Interactions on disk, in buckets of users that are sorted and merged one by one, to bound memory."""

import math
from collections import deque
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

        Raises:
            RepeatedError: A pair occurs twice, and the rule is "error".
        """
        order = ascending(self.key)
        key = self.key[order]
        last = np.ones(len(key), dtype=bool)
        last[:-1] = key[1:] != key[:-1]
        if not last.all():
            if duplicates == "error":
                raise RepeatedError(int(key[np.argmin(last)]))
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
        key, time = self.key[again], self.time[again]
        order = np.lexsort([time, key])
        return int(((np.diff(key[order]) == 0) & (np.diff(time[order]) == 0)).sum())

    def positions_from_the_end(self, sequence: bool) -> tuple[np.ndarray, np.ndarray]:
        """Position of each row among its user's rows, counted from the last, and the number of these rows.

        Rows must ascend by key and have times, by which they are ordered, and by item for equal times. A
        `sequence` has its own order.

        Returns:
            Positions, 0 for the last row, and numbers of rows, both int64 [R].
        """
        lengths = np.diff(np.flatnonzero(np.diff(self.user, prepend=-1, append=-1)))
        order = np.arange(len(self.key))
        if not sequence:
            assert self.time is not None
            order = np.lexsort([self.key, self.time, self.user])
        positions = np.empty(len(order), dtype=np.int64)
        positions[order] = np.repeat(np.cumsum(lengths), lengths) - 1 - np.arange(len(order))
        return positions, np.repeat(lengths, lengths)


class RepeatedError(Exception):
    """A (user, item) pair occurs twice but must not; `key` is the key of its rows."""

    def __init__(self, key: int) -> None:
        super().__init__(key)
        self.key = key


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
    """The rows of one part in files; a bucket holds all rows of its users, and buckets ascend by user."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def add(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Append rows in any order, and return their number.

        The batches have the columns `bucket` (uint16) and `key`, and perhaps `value` and `time`.
        """
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
    """The result of merging a part's rows in a bucket."""

    users: np.ndarray
    """The users of the rows that stay, without repeats."""
    items: np.ndarray
    """The items of the rows that stay."""
    num_outside: int = 0
    """Dropped rows outside the selected times."""
    num_repeated: int = 0
    """Dropped rows that repeat a pair."""
    num_below: int = 0
    """Dropped rows with too small a value."""
    num_taken: int = 0
    """Dropped rows whose pair is in an earlier part."""
    latest: float = -math.inf
    """The largest time of all rows that were read."""
    num_equal: int = 0
    """Kept rows of sequences that equal an earlier one in user, item and time."""
    below: Rows | None = None
    """The rows with too small a value."""

    @classmethod
    def of(cls, rows: Rows, below: Rows | None = None, **counts: float) -> "Merge":
        """The result for rows that stay."""
        return cls(rows.user[np.diff(rows.user, prepend=-1) > 0], rows.item, below=below, **counts)  # type: ignore[arg-type]


def merge(parts: Mapping[Part, Buckets], number: int, selection: Selection) -> dict[Part, Merge]:
    """Merge the rows of a bucket, and drop those outside the times or with too small a value.

    Each pair stays once, in the first part that has it. All rows of a sequence stay, in their order.
    """
    merges: dict[Part, Merge] = {}
    taken = np.zeros(0, np.uint64)
    least, keeps_time = selection.min_value, selection.keep_times or bool(selection.divided)
    for part, buckets in parts.items():
        rows = buckets.rows(number)
        inside = rows
        if rows.time is not None and selection.has_window:
            inside = rows.of((rows.time >= selection.since) & (rows.time < selection.until))
        pairs = inside.in_sequence() if selection.sequence else inside.merged(selection.duplicates)
        kept, small = pairs, None
        if least is not None and pairs.value is not None:
            kept, small = pairs.of(pairs.value >= least), pairs.of(pairs.value < least)
        new = kept.of(~np.isin(kept.key, taken, assume_unique=True)) if len(taken) else kept
        value, time = None if selection.sequence else new.value, new.time if keeps_time else None
        buckets.replace(number, Rows(new.key, value, time))
        merges[part] = Merge.of(
            new,
            num_outside=len(rows.key) - len(inside.key),
            num_repeated=len(inside.key) - len(pairs.key),
            num_below=len(pairs.key) - len(kept.key),
            num_taken=len(kept.key) - len(new.key),
            num_equal=new.num_equal() if selection.sequence else 0,
            latest=-math.inf if rows.time is None else float(rows.time.max(initial=-math.inf)),
            below=small,
        )
        taken = taken if selection.sequence else new.key
    return merges


def settle(
    parts: Mapping[Part, Buckets], number: int, selection: Selection, users: np.ndarray, items: np.ndarray
) -> dict[Part, Merge]:
    """Drop the rows of users and items that do not stay, and move rows that are set aside by time.

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
    if selection.divided and (selection.sequence or train.time is not None):
        of_parts |= _divided(train, selection)
    for part, rows in of_parts.items():
        parts[part].replace(number, Rows(rows.key, rows.value, rows.time if selection.keep_times else None))
    return {part: Merge.of(rows) for part, rows in of_parts.items()}


def _divided(rows: Rows, selection: Selection) -> dict[Part, Rows]:
    """Divide train rows between the train part and the parts that are set aside by time."""
    owners = owners_of(rows, selection)
    moved = {part: rows.of(owners == number) for number, part in enumerate(selection.divided, start=1)}
    return {"train": rows.of(owners == 0), **moved}


def owners_of(rows: Rows, selection: Selection) -> np.ndarray:
    """The part of each row, int64 [R]: 0 for train, 1 for the first of `selection.divided`, and so on.

    Rows must ascend by key and have times, or be those of a sequence in its order. A part that is set aside
    by number leaves at least one row of each user for training.
    """
    positions, lengths = rows.positions_from_the_end(selection.sequence)
    owner = np.cumsum(np.diff(rows.user, prepend=-1) > 0) - 1
    owners = np.zeros(len(rows.key), dtype=np.int64)
    for number, part in enumerate(selection.divided, start=1):
        stays = owners == 0
        if part in selection.last:
            moved = np.bincount(owner[~stays], minlength=len(owner))[owner]
            moves = stays & (positions - moved < np.minimum(selection.last[part], lengths - moved - 1))
        else:
            assert rows.time is not None
            moves = stays & (rows.time >= selection.from_time[part])
        owners[moves] = number
    return owners


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
