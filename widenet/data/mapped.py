"""Columns of memory-mapped Arrow files as numpy views: rows in any order, without reading the rest."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.blocks import CheckedFile
from widenet.data.manifest import File
from widenet.errors import DataError, reason_of

WORD_BYTES = 4


class MappedFile:
    """A file of examples, memory-mapped; `words` views the whole file as 32-bit words.

    Check bytes before you use them.

    Args:
        path: The file.
        stated: The file in the manifest; None if its bytes were just written or compared.
    """

    def __init__(self, path: Path, stated: File | None) -> None:
        self.path = path
        self._contents = None if stated is None else CheckedFile(path, stated)
        try:
            source = pa.memory_map(str(path))
            reader = pa.ipc.open_file(source)
            self.batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            self.names = reader.schema.names
            for batch in self.batches:
                batch.validate()
        except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
            raise DataError(f"must be an Arrow IPC file; {reason_of(error)}", place=path) from error
        self.schema = reader.schema
        source.seek(0)
        self._buffer = source.read_buffer()
        self.bytes = np.frombuffer(self._buffer, dtype=np.uint8)
        self.words = self.bytes[: len(self.bytes) // WORD_BYTES * WORD_BYTES].view(np.uint32)

    def position(self, buffer: pa.Buffer | None) -> int:
        """The position of a buffer in this file, in bytes; 0 for the missing buffer of an empty column."""
        if buffer is None or buffer.size == 0:
            return 0
        position: int = buffer.address - self._buffer.address
        is_sound = 0 <= position < len(self.bytes) and not position % WORD_BYTES
        DataError.require(is_sound, "must be uncompressed, in whole words", place=self.path)
        return position

    def check(self, starts: np.ndarray, stops: np.ndarray) -> None:
        """Compare byte ranges, int64 [N] each, with the manifest, block by block; raises DataError."""
        if self._contents is not None:
            self._contents.check(starts, stops)

    def check_words(self, first: np.ndarray, count: np.ndarray | int) -> None:
        """As `check`, for ranges of `count` words from `first` on."""
        self.check(first * WORD_BYTES, (first + count) * WORD_BYTES)

    def check_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Compare the rows of a record batch with the manifest, and return it; raises DataError."""
        for start, stop in self.bodies([batch]):
            self.check(np.array([start]), np.array([stop]))
        return batch

    def bodies(self, batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int]]:
        """The byte ranges of the rows of some record batches that store any, [start, stop)."""
        ranges = []
        for batch in batches:
            buffers = [buffer for column in batch.columns for buffer in column.buffers()]
            places = [(self.position(each), each.size) for each in buffers if each is not None and each.size]
            if places:
                ranges.append(
                    (min(start for start, _ in places), max(start + size for start, size in places))
                )
        return ranges


def damaged(path: Path, what: str) -> DataError:
    """Make the error for a file that is not as it was written."""
    return DataError(f"{path}: is damaged: {what}.")


class _Column:
    """The positions of a column's record batches in all files."""

    def __init__(self, files: Sequence[MappedFile], name: str, kind: pa.DataType) -> None:
        self.files = files
        arrays = [
            (number, batch.column(name))
            for number, file in enumerate(files)
            for batch in batches_with(file, name, kind)
        ]
        self.file_of_batch = np.array([number for number, _ in arrays], dtype=np.int64)
        self.first_rows = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for _, array in arrays], out=self.first_rows[1:])
        self._place(arrays)

    def _place(self, arrays: list[tuple[int, pa.Array]]) -> None:
        raise NotImplementedError

    @property
    def num_rows(self) -> int:
        return int(self.first_rows[-1])

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The record batch of each row, and the row within it."""
        assert not len(rows) or (rows.min() >= 0 and rows.max() < self.num_rows), (
            "rows must lie in [0, examples)"
        )
        if len(self.first_rows) == 2:
            return np.zeros(len(rows), dtype=np.int64), rows
        batches = np.searchsorted(self.first_rows, rows, side="right") - 1
        return batches, rows - self.first_rows[batches]

    def by_file(self, batches: np.ndarray) -> Iterator[tuple[MappedFile, np.ndarray | slice]]:
        """Yield each file that holds some of the batches, and which of them it holds."""
        if len(self.files) == 1:
            yield self.files[0], slice(None)
            return
        owners = self.file_of_batch[batches]
        for number in np.unique(owners):
            yield self.files[number], np.flatnonzero(owners == number)


class ListColumn(_Column):
    """A `list<uint32>`, `list<float32>` or `string` column: rows of any length."""

    def _place(self, arrays: list[tuple[int, pa.Array]]) -> None:
        buffers = [(self.files[number], array.buffers()) for number, array in arrays]
        self.offsets_at = np.array(
            [file.position(parts[1]) // WORD_BYTES for file, parts in buffers], dtype=np.int64
        )
        self.entries_at = np.array([file.position(parts[-1]) for file, parts in buffers], dtype=np.int64)
        self.num_entries = np.array([_num_entries(array) for _, array in arrays], dtype=np.int64)

    def extents(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the entries of some rows.

        Returns:
            Record batch, first entry (counted within the batch) and number of entries of each row, all
            int64 [E].
        """
        batches, local = self.locate(rows)
        at = self.offsets_at[batches] + local
        starts, counts = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
        for file, chosen in self.by_file(batches):
            file.check_words(at[chosen], 2)
            first, last = file.words[at[chosen]], file.words[at[chosen] + 1]
            if (first > last).any() or (last > self.num_entries[batches[chosen]]).any():
                raise damaged(file.path, "a row ends before it begins, or after the last entry")
            starts[chosen] = first
            counts[chosen] = last - first
        return batches, starts, counts

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entries of the rows, one row after another (uint32 [Z]), and the row starts (int64 [E + 1])."""
        batches, starts, counts = self.extents(rows)
        indptr = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(counts, out=indptr[1:])
        shift = self.entries_at[batches] // WORD_BYTES + starts - indptr[:-1]
        for file, chosen in self.by_file(batches):
            file.check_words(shift[chosen] + indptr[:-1][chosen], counts[chosen])
        if len(self.files) == 1:
            return self.files[0].words[_expanded(shift, counts, indptr)], indptr
        entries = np.empty(indptr[-1], dtype=np.uint32)
        at = _expanded(shift, counts, indptr)
        owners = np.repeat(self.file_of_batch[batches], counts)
        for number in np.unique(owners):
            chosen = owners == number
            entries[chosen] = self.files[number].words[at[chosen]]
        return entries, indptr

    def texts(self, rows: np.ndarray) -> list[str]:
        """The rows of a string column."""
        batches, starts, counts = self.extents(rows)
        first = self.entries_at[batches] + starts
        for file, chosen in self.by_file(batches):
            file.check(first[chosen], (first + counts)[chosen])
        owners = self.file_of_batch[batches]
        return [
            _text(self.files[owner], start, start + count)
            for owner, start, count in zip(owners, first, counts, strict=True)
        ]


class FixedColumn(_Column):
    """A `float32` or `fixed_size_list<float32>` column: all rows have the same length."""

    def _place(self, arrays: list[tuple[int, pa.Array]]) -> None:
        self.values_at = np.array(
            [self.files[n].position(array.buffers()[-1]) // WORD_BYTES for n, array in arrays], dtype=np.int64
        )

    def gather(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The numbers of the rows, float32 [E, width]."""
        batches, local = self.locate(rows)
        at = self.values_at[batches] + local * width
        values = np.empty((len(rows), width), dtype=np.float32)
        for file, chosen in self.by_file(batches):
            file.check_words(at[chosen], width)
            values[chosen] = file.words.view(np.float32)[at[chosen][:, None] + np.arange(width)]
        return values


def _num_entries(array: pa.Array) -> int:
    """Number of entries in all rows of an array; for text, of bytes."""
    if isinstance(array, pa.ListArray):
        return len(array.values)
    entries = array.buffers()[-1]
    return 0 if entries is None else int(entries.size)


def _text(file: MappedFile, start: int, stop: int) -> str:
    try:
        return file.bytes[start:stop].tobytes().decode()
    except UnicodeDecodeError:
        raise damaged(file.path, "an id is not UTF-8 text") from None


def batches_with(file: MappedFile, name: str, kind: pa.DataType) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a file, which must have a column of this name and type.

    Raises:
        DataError: The column is missing, has another type, or holds nulls.
    """
    actual = file.schema.field(name).type if name in file.names else None
    DataError.require(actual == kind, f"must be {kind}", place=file.path, column=name, value=actual)
    for batch in file.batches:
        has_nulls = batch.column(name).null_count > 0
        DataError.require(not has_nulls, "must hold no nulls", place=file.path, column=name)
        yield batch


def _expanded(shift: np.ndarray, counts: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    at = np.repeat(shift, counts)
    at += np.arange(indptr[-1])
    return at
