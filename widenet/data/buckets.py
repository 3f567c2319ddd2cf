"""Interactions out of core: rows on disk in buckets of users, each sorted and merged by itself."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from widenet.data.manifest import Part
from widenet.data.selection import Duplicates, Selection

ROWS_PER_BUCKET = 2**19
"""Rows of a bucket, but for those of the user who fills it: memory grows with this, never with the number
of rows.
"""
BYTES_PER_BUCKET = 120 * ROWS_PER_BUCKET
"""What memory holds at most of a bucket that is merged."""

_ITEM_BITS = np.uint64(32)
_LAST = np.uint64(2**64 - 1)
_TYPES = {"key": np.uint64, "value": np.float64, "time": np.float64}

_Task = TypeVar("_Task")
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Rows:
    """Some rows: `key` is user * 2^32 + item, uint64 [R]; `value` and `time` are float64 [R], or None
    where nothing was read.
    """

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

    def merged(self, duplicates: Duplicates) -> "Rows":
        """Each (user, item) once, ascending: its row of the last, the first or the largest, or the sum of
        all; see docs/data.md.

        Without values a row counts 1 in a sum. Raises RepeatedError for "error" where a pair stands twice.
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
        """What the row that counts has most of, the weightiest at the end."""
        value = [] if self.value is None else [~np.signbit(self.value[rows]), self.value[rows]]
        time = [] if self.time is None else [-self.time[rows] if duplicates == "first" else self.time[rows]]
        return [*time, *value] if duplicates in ("max", "sum") else [*value, *time]

    def _summed(self, order: np.ndarray, last: np.ndarray) -> "Rows":
        """The sum of each pair's values and its last time; `order` puts pairs together, `last` marks the
        last row of each.
        """
        if not len(order):
            return self
        starts = np.flatnonzero(np.concatenate([[True], last[:-1]]))
        value = np.ones(len(order)) if self.value is None else self.value[order]
        time = None if self.time is None else np.maximum.reduceat(self.time[order], starts)
        return Rows(self.key[order[starts]], np.add.reduceat(value, starts), time)

    def in_sequence(self) -> "Rows":
        """All rows, user by user, each user's by time; of equal times, and where no time was read, as they
        are.
        """
        user = self.user.astype(np.uint64)
        if self.time is None:
            return self.of(ascending(user))
        by_time = np.argsort(self.time, kind="stable")
        return self.of(by_time[ascending(user[by_time])])

    def positions_from_the_end(self, sequence: bool) -> tuple[np.ndarray, np.ndarray]:
        """Where each row stands among its user's rows by time, 0 for the last, of equal times by item; and
        how many the user has.

        Both int64 [R]. Rows ascend by key and have times; those of a `sequence` stand as they lie.
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
    """A pair stands twice where it must not; `key` is that of its rows."""

    def __init__(self, key: int) -> None:
        super().__init__(key)
        self.key = key


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
    """The rows of one part, in files of a folder: a bucket holds all rows of its users, and buckets ascend
    by user.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def add(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Append rows of the columns `bucket` (uint16) and `key`, perhaps `value`, `time`, in any order;
        gives their number.
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
        """Let these be the rows of a bucket."""
        for name in _TYPES:
            self._file(number, name).unlink(missing_ok=True)
            if (column := getattr(rows, name)) is not None:
                self._file(number, name).write_bytes(column.data)

    def rows(self, number: int) -> Rows:
        """The rows of a bucket; none where none were added."""
        files = {name: self._file(number, name) for name in _TYPES}
        found = {
            name: np.fromfile(path, kind)
            for (name, path), kind in zip(files.items(), _TYPES.values(), strict=True)
            if path.exists()
        }
        return Rows(**found) if found else Rows(np.zeros(0, np.uint64))

    def _file(self, number: int, name: str) -> Path:
        return self._folder / f"{number}.{name}"


@dataclass(frozen=True)
class Merge:
    """What became of a part's rows in a bucket: the distinct users and, entry by entry, the items that
    stay; and what did not.
    """

    users: np.ndarray
    items: np.ndarray
    num_outside: int = 0
    num_repeated: int = 0
    num_below: int = 0
    num_taken: int = 0
    latest: float = -math.inf
    """The largest time of all rows that were read."""
    below: Rows | None = None
    """The rows whose value is too small."""

    @classmethod
    def of(cls, rows: Rows, below: Rows | None = None, **counts: float) -> "Merge":
        """That of the rows that stay."""
        return cls(rows.user[np.diff(rows.user, prepend=-1) > 0], rows.item, below=below, **counts)  # type: ignore[arg-type]


def merge(parts: Mapping[Part, Buckets], number: int, selection: Selection) -> dict[Part, Merge]:
    """Leave in a bucket each pair of the right time once, where its value is large enough: in the first part
    that has it.

    Of sequences all rows of the right time and value stay, in their order.
    """
    found: dict[Part, Merge] = {}
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
        buckets.replace(
            number, Rows(new.key, None if selection.sequence else new.value, new.time if keeps_time else None)
        )
        outside, repeated = len(rows.key) - len(inside.key), len(inside.key) - len(pairs.key)
        below, twice = len(pairs.key) - len(kept.key), len(kept.key) - len(new.key)
        latest = -math.inf if rows.time is None else float(rows.time.max(initial=-math.inf))
        found[part] = Merge.of(
            new,
            num_outside=outside,
            num_repeated=repeated,
            num_below=below,
            num_taken=twice,
            latest=latest,
            below=small,
        )
        taken = taken if selection.sequence else new.key
    return found


def settle(
    parts: Mapping[Part, Buckets], number: int, selection: Selection, users: np.ndarray, items: np.ndarray
) -> dict[Part, Merge]:
    """Leave in a bucket the pairs of users and items that stay, bool [users] and [items], and move those
    that are set aside by time.
    """
    rows = {part: buckets.rows(number) for part, buckets in parts.items()}
    rows = {part: each.of(users[each.user] & items[each.item]) for part, each in rows.items()}
    if selection.divided and (selection.sequence or rows["train"].time is not None):
        rows |= _divided(rows["train"], selection)
    for part, each in rows.items():
        parts[part].replace(number, Rows(each.key, each.value, each.time if selection.keep_times else None))
    return {part: Merge.of(each) for part, each in rows.items()}


def _divided(rows: Rows, selection: Selection) -> dict[Part, Rows]:
    """The rows of the train part, and those that move to other parts; by their number, one stays for
    training.
    """
    owners = owners_of(rows, selection)
    moved = {part: rows.of(owners == number) for number, part in enumerate(selection.divided, start=1)}
    return {"train": rows.of(owners == 0), **moved}


def owners_of(rows: Rows, selection: Selection) -> np.ndarray:
    """Which part each row goes to, int64 [R]: 0 for train, 1 for the first of `selection.divided`, and so on.

    Rows ascend by key and have times, or are those of a sequence in its order.
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
    example_of: np.ndarray | None,
    feature_of: np.ndarray,
    *,
    sequence: bool = False,
    has_times: bool = False,
) -> pa.RecordBatch:
    """The entries of a bucket: example, feature, value, and with `has_times` their time.

    They ascend by example and feature; those of sequences by example, in their order.

    example_of: int64 [users], or None where they are the same; feature_of: uint32 [items].
    """
    example = rows.user if example_of is None else example_of[rows.user]
    feature = feature_of[rows.item]
    value = np.ones(len(feature), np.float32) if rows.value is None else rows.value.astype(np.float32)
    key = example.astype(np.uint64) if sequence else (example.astype(np.uint64) << _ITEM_BITS) | feature
    columns = {"example": example, "feature": feature, "value": value}
    if has_times:  # of a bucket without rows nothing is stored, no times either
        columns["time"] = np.zeros(0) if rows.time is None else rows.time
    if not (key[1:] >= key[:-1]).all():
        order = ascending(key)
        columns = {name: column[order] for name, column in columns.items()}
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns.values()], list(columns))


def in_order(work: Callable[[_Task], _Done], tasks: Iterable[_Task], threads: int) -> Iterator[_Done]:
    """What the work gives for each task, in the order of the tasks; no more than `threads` are under way
    or wait to be taken.
    """
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Done]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) == threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
