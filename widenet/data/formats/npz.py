"""SciPy's sparse matrices in `.npz` files: rows are users, and columns are items.

Files are read in blocks. Pickled objects are never read.
"""

import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from widenet.data.formats.memory import InArrow
from widenet.data.formats.source import Format, Reading
from widenet.errors import DataError

_ENTRIES_AT_ONCE = 2**18
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def opened(path: Path, name: str, reading: Reading) -> "NpzMatrix":  # noqa: ARG001
    """Open a file that `scipy.sparse.save_npz` wrote in CSR, CSC or COO form; reads it once.

    Raises:
        DataError: The file is another one, or is damaged.
    """
    try:
        file = _Npz(path)
        return NpzMatrix(
            name,
            f"a matrix of {file.num_rows:,} rows",
            ["user", "item", "value"],
            empty_users=True,
            file=file,
        )
    except (
        ValueError,
        KeyError,
        OSError,
        EOFError,
        AttributeError,
        IndexError,
        TypeError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        rule = "must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form"
        reason = f"it has no array {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{name}: {rule}; {reason}.") from error


FORMAT = Format(
    opened, (".npz",), is_text=False, begins=lambda head: head.startswith(b"PK\x03\x04") and b".npy" in head
)


class _Npz:
    """The arrays of a sparse matrix in a file, each read in blocks.

    Memory holds one byte a row and, for CSR and CSC, the starts of the rows or columns.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with zipfile.ZipFile(path) as archive:
            self._names = {member.removesuffix(".npy") for member in archive.namelist()}
        form = bytes(self._read_array("format").item()).decode()
        self.num_rows, num_columns = (int(length) for length in self._read_array("shape"))
        if form not in ("csr", "csc", "coo"):
            raise ValueError(f"its form is {form}")
        self._starts = None if form == "coo" else self._read_array("indptr").astype(np.int64)
        self._by_rows = form == "csr"
        lines = self.num_rows if self._by_rows else num_columns
        if self._starts is not None and (
            len(self._starts) != lines + 1 or self._starts[0] != 0 or (np.diff(self._starts) < 0).any()
        ):
            raise ValueError("its arrays do not fit its shape")
        self.value_type = _stored_type(self._array_type("data"))
        is_empty, num_entries = np.ones(self.num_rows, dtype=np.bool_), 0
        for rows, columns, _ in self.entries():
            for numbers, limit in ((rows, self.num_rows), (columns, num_columns)):
                if numbers.dtype.kind not in "iu":
                    raise ValueError(f"its indices are of the type {numbers.dtype}")
                if len(numbers) and not 0 <= numbers.min() <= numbers.max() < limit:
                    raise ValueError("its indices lie outside its shape")
            is_empty[rows] = False
            num_entries += len(rows)
        if self._starts is not None and num_entries != self._starts[-1]:
            raise ValueError("its arrays do not fit its shape")
        self.empty_rows = np.flatnonzero(is_empty)

    def entries(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield rows, columns and values of some entries at a time, in the order of the file."""
        names = ("indices", "data") if self._starts is not None else ("row", "col", "data")
        done = 0
        for *numbers, values in zip(*map(self._blocks, names), strict=True):
            if any(len(each) != len(values) for each in numbers):
                raise ValueError("its arrays do not fit its shape")
            if self._starts is None:
                rows, columns = numbers
            else:
                lines = np.searchsorted(self._starts, np.arange(done, done + len(values)), side="right") - 1
                rows, columns = (lines, *numbers) if self._by_rows else (*numbers, lines)
            yield rows, columns, values
            done += len(values)

    def _read_array(self, name: str) -> np.ndarray:
        with (
            zipfile.ZipFile(self._path) as archive,
            archive.open(self._member(name)) as stream,
            _without_warnings(),
        ):
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            return array

    def _array_type(self, name: str) -> np.dtype[Any]:
        with ExitStack() as stack:
            return self._open_array(name, stack)[2]

    def _blocks(self, name: str) -> Iterator[np.ndarray]:
        """Yield an array of one dimension in blocks."""
        with ExitStack() as stack:
            stream, length, kind = self._open_array(name, stack)
            for start in range(0, length, _ENTRIES_AT_ONCE):
                wanted = min(_ENTRIES_AT_ONCE, length - start) * kind.itemsize
                read = stream.read(wanted)
                if len(read) < wanted:
                    raise EOFError("it is cut off")
                yield np.frombuffer(read, kind)

    def _open_array(self, name: str, stack: ExitStack) -> tuple[Any, int, np.dtype[Any]]:
        """Open an array: a stream that is past the header, its length and its type."""
        stream = stack.enter_context(
            stack.enter_context(zipfile.ZipFile(self._path)).open(self._member(name))
        )
        with _without_warnings():
            shape, _, kind = _HEADERS[np.lib.format.read_magic(stream)](stream)
        if kind.hasobject:
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        if len(shape) != 1:
            raise ValueError(f"{name} has the shape {shape}")
        return stream, shape[0], kind

    def _member(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return f"{name}.npy"


def _stored_type(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which Arrow and DuckDB store the numbers of a type.

    Raises:
        ValueError: The type is not one of numbers, or Arrow and DuckDB have no such type.
    """
    if kind.kind not in "biuf" or kind.itemsize > 8:
        raise ValueError(f"its values are of the type {kind}")
    return np.dtype(np.float32) if kind == np.float16 else kind.newbyteorder("=")


@dataclass
class NpzMatrix(InArrow):
    """A sparse matrix in a file; a row without entries is a user without items."""

    file: _Npz = field(kw_only=True)

    def rows(self) -> pa.RecordBatchReader:
        """The columns user, item and value, in batches."""
        kind = pa.from_numpy_dtype(self.file.value_type)
        schema = pa.schema([("user", pa.int64()), ("item", pa.int64()), ("value", kind)])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for rows, columns, values in self.file.entries():
            arrays = [
                pa.array(rows.astype(np.int64)),
                pa.array(columns.astype(np.int64)),
                pa.array(values.astype(self.file.value_type)),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        empty = self.file.empty_rows
        ones = pa.array(np.ones(len(empty), self.file.value_type))
        yield pa.RecordBatch.from_arrays(
            [pa.array(empty), pa.nulls(len(empty), pa.int64()), ones], schema=schema
        )


def _without_warnings() -> AbstractContextManager[None]:
    """Hide NumPy's warnings about files from Python 2, which it reads all the same."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)
