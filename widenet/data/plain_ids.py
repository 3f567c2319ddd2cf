"""Reads sources whose ids are all small whole numbers, in a single pass.

Such ids can be counted and stored as numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LARGEST_ID = 2**24 - 1
"""Largest plain id. Memory holds a count and a number for every id up to the largest one."""

_LARGEST_ID_A_ROW, _FEWEST_ROWS = 32, 2**15
"""Largest id for each row so far, of at least `_FEWEST_ROWS`; counting sparser ids costs more than names."""

_ROWS_PER_PIECE = 2**18
_TYPES: dict[str, type[np.number]] = {
    "user": np.uint32,
    "item": np.uint32,
    "value": np.float64,
    "time": np.float64,
}


def plain_id(column: str) -> str:
    """The SQL of a text as a plain id; NULL for any other text, such as 007."""
    number = f'TRY_CAST("{column}" AS UINTEGER)'
    return f'CASE WHEN CAST({number} AS VARCHAR) = "{column}" AND {number} <= {LARGEST_ID} THEN {number} END'


class PlainRows:
    """Rows of `user`, `item` and perhaps `value` and `time` in files, and the number of rows of each id.

    Args:
        folder: The folder to make for the files.
        numbers: Those of `value` and `time` that rows have.
    """

    def __init__(self, folder: Path, numbers: Sequence[str]) -> None:
        folder.mkdir()
        self._files = {name: folder / name for name in ("user", "item", *numbers)}
        self.counts = {role: np.zeros(0, dtype=np.int64) for role in ("user", "item")}

    def fill(self, batches: Iterable[pa.RecordBatch]) -> bool:
        """Store all rows; returns whether all ids are plain.

        It stops at the first NULL, which is another id or a mistake, and as soon as ids are too sparse.
        """
        num_rows = 0
        for batch in batches:
            if any(column.null_count for column in batch.columns):
                return False
            num_rows += batch.num_rows
            if any(
                pc.max(batch.column(name)).as_py() > _LARGEST_ID_A_ROW * max(num_rows, _FEWEST_ROWS)
                for name in self.counts
            ):
                return False
            for name, path in self._files.items():
                column = batch.column(name).to_numpy()
                if name in self.counts:
                    self.counts[name] = _sum(self.counts[name], np.bincount(column))
                with path.open("ab") as file:
                    file.write(column.data)
        return True

    def batches(self, bucket_of: np.ndarray, number_of: Mapping[str, np.ndarray]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the form that `buckets.Buckets.add` takes.

        Args:
            bucket_of: The bucket of each user id, uint16 [ids].
            number_of: The number of each id of `user` and of `item`, uint64 [ids].
        """
        num_rows = int(self.counts["user"].sum())
        for start in range(0, num_rows, _ROWS_PER_PIECE):
            rows = {name: _piece(path, _TYPES[name], start) for name, path in self._files.items()}
            user, item = rows.pop("user"), rows.pop("item")
            columns = {
                "bucket": bucket_of[user],
                "key": number_of["user"][user] << np.uint64(32) | number_of["item"][item],
                **rows,
            }
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns.values()], list(columns))


def _piece(path: Path, kind: type[np.number], start: int) -> np.ndarray:
    return np.fromfile(path, kind, _ROWS_PER_PIECE, offset=start * np.dtype(kind).itemsize)


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    total = np.zeros(max(len(first), len(second)), dtype=np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total
