"""Sources of vectors with keys: arrays, and files of text (`key<TAB>v v v`), NumPy, Parquet or Arrow."""

import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from tokenize import TokenError
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widenet.errors import DataError, FitError, OptionError, reason_of
from widenet.regular_files import bounded_lines, check_regular

KEY, VECTOR = "key", "vector"
"""The columns of a table: texts, and lists of numbers of equal lengths; and the arrays of a .npz file."""


class Source(Protocol):
    """N vectors of D numbers that can be read in pieces; N and D are at least 1."""

    @property
    def columns(self) -> int:
        """Numbers of a vector, D."""

    @property
    def keys(self) -> pa.Array:
        """The keys, N texts."""

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """A copy of the vectors at the positions [start, stop), float32 [stop - start, D]."""

    def place(self, position: int) -> str:
        """Describe where a vector is, for messages."""


@dataclass(frozen=True)
class Array:
    """Vectors in memory or in a memory-mapped file: numbers [N, D]."""

    name: str
    numbers: NDArray[Any]
    given_keys: pa.Array | None = None

    @property
    def columns(self) -> int:
        """See `Source`."""
        return int(self.numbers.shape[1])

    @cached_property
    def keys(self) -> pa.Array:
        """See `Source`; the positions if there are no keys."""
        if self.given_keys is not None:
            return self.given_keys
        return pa.array(np.arange(len(self.numbers))).cast(pa.string())

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """See `Source`."""
        with np.errstate(over="ignore"):
            return np.array(self.numbers[start:stop], dtype=np.float32, order="C")

    def place(self, position: int) -> str:
        """See `Source`."""
        return f"{self.name}: row {position}"


class TextFile:
    """A text file of lines `key<TAB>v v v`.

    Memory holds the keys and the positions of lines; numbers are read on demand.
    """

    def __init__(self, path: Path, key_delimiter: str = "\t", delimiter: str = " ") -> None:
        if not key_delimiter:
            raise OptionError("the delimiter after the key must not be empty.")
        if not delimiter:
            raise OptionError("the delimiter of numbers must not be empty.")
        self.path, self.key_delimiter, self.delimiter = path, key_delimiter, delimiter
        keys, starts = list[str](), [0]
        with _opened(path) as file:
            for line in bounded_lines(file, path):
                keys.append(self._split_line(line, len(keys))[0])
                starts.append(starts[-1] + len(line))
            self.keys, self.starts = pa.array(keys, pa.string()), np.array(starts)
            self.columns = len(self._cells(file, 0)) if keys else 0
        _check_size(str(path), len(self), self.columns)

    def __len__(self) -> int:
        return len(self.keys)

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """See `Source`."""
        rows = np.empty((stop - start, self.columns), dtype=np.float32)
        with _opened(self.path) as file, np.errstate(over="ignore"):
            for row in range(start, stop):
                rows[row - start] = self._numbers(self._cells(file, row), row)
        return rows

    def place(self, position: int) -> str:
        """See `Source`."""
        return f"{self.path}: line {position + 1}"

    def _cells(self, file: Any, row: int) -> list[str]:
        if file.tell() != self.starts[row]:
            file.seek(self.starts[row])
        return self._split_line(file.readline(), row)[1].strip(self.delimiter).split(self.delimiter)

    def _split_line(self, line: bytes, row: int) -> tuple[str, str]:
        try:
            key, delimiter, rest = line.decode().rstrip("\r\n").partition(self.key_delimiter)
        except UnicodeDecodeError:
            raise DataError(f"{self.place(row)}: must be UTF-8 text.") from None
        if not delimiter:
            form = f"KEY{self.key_delimiter!r}NUMBER{self.delimiter!r}NUMBER..."
            raise DataError(f"{self.place(row)}: must be {form}; got {key[:60]!r}.")
        return key, rest

    def _numbers(self, cells: list[str], row: int) -> NDArray[np.float32]:
        if len(cells) != self.columns:
            rule = f"must have {self.columns:,} numbers, as line 1 has; got {len(cells):,}"
            raise DataError(f"{self.place(row)}: {rule}.")
        try:
            return np.array(cells, dtype=np.float32)
        except ValueError:
            wrong = next(cell for cell in cells if not _is_number(cell))
            raise DataError(f"{self.place(row)}: must hold numbers; got {wrong!r}.") from None


@dataclass(frozen=True)
class Joined:
    """A concatenation of several sources."""

    parts: Sequence[Source]

    @property
    def columns(self) -> int:
        """See `Source`."""
        return self.parts[0].columns

    @cached_property
    def keys(self) -> pa.Array:
        """See `Source`."""
        return pa.concat_arrays([part.keys for part in self.parts])

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """See `Source`."""
        pieces, first = [np.empty((0, self.columns), dtype=np.float32)], 0
        for part in self.parts:
            low, high = max(start - first, 0), min(stop - first, len(part))
            if low < high:
                pieces.append(part.rows(low, high))
            first += len(part)
        return np.concatenate(pieces)

    def place(self, position: int) -> str:
        """See `Source`."""
        for part in self.parts:
            if position < len(part):
                return part.place(position)
            position -= len(part)
        raise AssertionError("a position is below the number of vectors")


def source_of(vectors: Any, keys: Iterable[str] | None) -> Source:
    """Make a source of numbers [N, D], of one or several files, or return one as it is.

    Args:
        vectors: The vectors, or where they are.
        keys: N texts for numbers that have none.

    Raises:
        DataError: The vectors are not valid.
        FitError: Files have vectors of different lengths.
        OptionError: The keys do not match the vectors, or the vectors have keys of their own.
    """
    source = _source(vectors)
    if keys is None:
        return source
    if not isinstance(source, Array):
        raise OptionError(
            "keys go with numbers in memory or in a .npy file; text and several files have their own."
        )
    key_array = pa.array([str(key) for key in keys], pa.string())
    if len(key_array) != len(source):
        raise OptionError(f"keys must be one for each of {len(source):,} vectors; got {len(key_array):,}.")
    return Array(source.name, source.numbers, key_array)


def _source(vectors: Any) -> Source:
    if isinstance(vectors, str | PathLike):
        return read_vectors([Path(vectors)])
    is_list = isinstance(vectors, list | tuple) and bool(vectors)
    if is_list and all(isinstance(path, str | PathLike) for path in vectors):
        return read_vectors([Path(path) for path in vectors])
    if isinstance(vectors, Array | TextFile | Joined):
        return vectors
    try:
        is_tensor = hasattr(vectors, "detach")
        numbers = vectors.detach().cpu().float().numpy() if is_tensor else np.asarray(vectors)
    except ValueError:
        raise DataError("vectors must all have equally many numbers.") from None
    return _array("vectors", numbers)


def read_vectors(paths: Sequence[Path], key_delimiter: str = "\t", delimiter: str = " ") -> Source:
    """Read vectors from files: .npy [N, D], .npz, .parquet and .arrow with key and vector, or else text.

    Args:
        paths: The files, at least one; their vectors are concatenated.
        key_delimiter: For text: what separates the key from the numbers.
        delimiter: For text: what separates the numbers.

    Raises:
        DataError: A file cannot be read, or holds something else.
        FitError: Files have vectors of different lengths.
        OptionError: There is no file, or a delimiter is empty.
    """
    if not paths:
        raise OptionError("name at least one file of vectors.")
    parts = [_read(path, key_delimiter, delimiter) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.columns != parts[0].columns:
            raise FitError(
                f"{path}: vectors must have {parts[0].columns:,} numbers, as those of {paths[0]};"
                f" got {part.columns:,}."
            )
    return parts[0] if len(parts) == 1 else Joined(parts)


def _read(path: Path, key_delimiter: str, delimiter: str) -> Source:
    match path.suffix.lower():
        case ".npy" | ".npz":
            return _numpy(path)
        case ".parquet":
            return _table(path, "a Parquet")
        case ".arrow":
            return _table(path, "an Arrow")
    return TextFile(path, key_delimiter, delimiter)


_BROKEN = (
    ValueError,
    EOFError,
    SyntaxError,
    TokenError,
    MemoryError,
    RuntimeError,  # encrypted, or compressed in a way that Python lacks
    BadZipFile,
    zlib.error,
)
"""What NumPy raises for files that it cannot read."""


def _numpy(path: Path) -> Source:
    _opened(path).close()
    try:
        # NumPy warns of files that Python 2 wrote, although it reads them. It never unpickles here.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            loaded = np.load(path, mmap_mode="r")
        if isinstance(loaded, np.ndarray):
            return _array(str(path), loaded)
        with loaded:
            numbers, keys = loaded[VECTOR], loaded[KEY]
    except _BROKEN as error:
        raise _unreadable(path, reason_of(error)) from None
    except KeyError:
        raise _unreadable(path, f'a .npz file needs the arrays "{KEY}" and "{VECTOR}"') from None
    source = _array(str(path), numbers)
    if keys.shape != numbers.shape[:1] or keys.dtype.kind not in "Uiu":
        rule = f'"{KEY}" must be {len(numbers):,} texts or whole numbers, one for each vector'
        raise _unreadable(path, f"{rule}; got {keys.dtype} {list(keys.shape)}")
    return Array(source.name, numbers, pa.array(keys.astype(str).tolist(), pa.string()))


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: must be a {path.suffix.lower()} file of numbers; {reason}.")


def _table(path: Path, kind: str) -> Source:
    _opened(path).close()
    try:
        if kind == "a Parquet":
            table = pq.read_table(path, columns=[KEY, VECTOR])
        else:
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        keys = table[KEY].cast(pa.string()).combine_chunks()
        lists = table[VECTOR].cast(pa.list_(pa.float32())).combine_chunks()
    except (pa.ArrowException, KeyError) as error:
        columns = f'columns "{KEY}", texts, and "{VECTOR}", lists of numbers'
        raise DataError(f"{path}: must be {kind} file with {columns}; {reason_of(error)}.") from None
    sizes = np.diff(lists.offsets.to_numpy())
    if keys.null_count or lists.null_count or lists.flatten().null_count or len(set(sizes.tolist())) > 1:
        raise DataError(
            f"{path}: every row must have a key, and as many numbers as the first one; none may be missing."
        )
    _check_size(str(path), len(keys), int(sizes[0]) if len(sizes) else 0)
    return Array(str(path), lists.flatten().to_numpy().reshape(len(keys), -1), keys)


def _array(name: str, numbers: NDArray[Any]) -> Array:
    if numbers.ndim != 2 or numbers.dtype.kind not in "fiub":
        raise DataError(
            f"{name}: must be numbers of the shape [vectors, numbers of each]; got {numbers.dtype}"
            f" {list(numbers.shape)}."
        )
    _check_size(name, *numbers.shape)
    return Array(name, numbers)


def _check_size(name: str, count: int, columns: int) -> None:
    if not count or not columns:
        raise DataError(
            f"{name}: must hold at least one vector of at least one number; got {count:,} of {columns:,}."
        )


def _opened(path: Path) -> Any:
    check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from None


def _is_number(text: str) -> bool:
    try:
        np.float32(text)
    except ValueError:
        return False
    return True
