"""Vectors with keys: arrays, and files of text (`key<TAB>v v v`), NumPy or Parquet."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widenet.errors import DataError, FitError, OptionError, reason_of
from widenet.regular_files import bounded_lines, check_regular

KEY, VECTOR = "key", "vector"
"""The columns of a table: texts, and lists of numbers of equal lengths."""

_BROKEN = (ValueError, EOFError, SyntaxError, TokenError, MemoryError)
"""What NumPy raises for files that it cannot read."""


@dataclass(frozen=True)
class Source:
    """N vectors of D numbers; N and D are at least 1.

    Attributes:
        numbers: The vectors, in memory or in a memory-mapped file, numbers [N, D].
        keys: The keys, N texts.
        names: Where the vectors are, for messages: for each file or array its name, the word for one of its
            rows with the number of the first, and how many there are.
        has_keys: Whether the keys came with the vectors; otherwise they are positions.
    """

    numbers: NDArray[Any]
    keys: pa.Array
    names: tuple[tuple[str, str, int, int], ...]
    has_keys: bool = True

    @property
    def columns(self) -> int:
        """Numbers of a vector, D."""
        return int(self.numbers.shape[1])

    def __len__(self) -> int:
        return len(self.numbers)

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """A copy of the vectors at the positions [start, stop), float32 [stop - start, D]."""
        with np.errstate(over="ignore"):
            return np.array(self.numbers[start:stop], dtype=np.float32, order="C")

    def place(self, position: int) -> str:
        """Describe where a vector is, for messages."""
        for name, word, first, count in self.names:
            if position < count:
                return f"{name}: {word} {first + position}"
            position -= count
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
    rule = "go with numbers in memory or in a .npy file; others have their own"
    OptionError.require(not source.has_keys, rule, option="keys")
    key_array = pa.array([str(key) for key in keys], pa.string())
    rule = f"must be one for each of {len(source):,} vectors"
    OptionError.require(len(key_array) == len(source), rule, option="keys", value=len(key_array))
    return replace(source, keys=key_array)


def _source(vectors: Any) -> Source:
    if isinstance(vectors, Source):
        return vectors
    if isinstance(vectors, str | PathLike):
        return read_vectors([Path(vectors)])
    if isinstance(vectors, list | tuple) and vectors and isinstance(vectors[0], str | PathLike):
        return read_vectors([Path(path) for path in vectors])
    try:
        is_tensor = hasattr(vectors, "detach")
        numbers = vectors.detach().cpu().float().numpy() if is_tensor else np.asarray(vectors)
    except ValueError:
        raise DataError("must all have equally many numbers", place="vectors") from None
    return _array("vectors", numbers)


def read_vectors(paths: Sequence[Path], key_delimiter: str = "\t", delimiter: str = " ") -> Source:
    """Read vectors from files: .npy [N, D], .parquet with key and vector, or else text.

    Only a single .npy file is not read into memory.

    Args:
        paths: The files, at least one; their vectors are concatenated.
        key_delimiter: For text: what separates the key from the numbers.
        delimiter: For text: what separates the numbers.

    Raises:
        DataError: A file cannot be read, or holds something else.
        FitError: Files have vectors of different lengths.
        OptionError: There is no file, or a delimiter is empty.
    """
    OptionError.require(paths and key_delimiter and delimiter, "must be files and delimiters", option="paths")
    parts = [_read(path, key_delimiter, delimiter) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        rule = f"vectors must have {parts[0].columns:,} numbers, as those of {paths[0]}"
        FitError.require(part.columns == parts[0].columns, rule, place=path, value=part.columns)
    if len(parts) == 1:
        return parts[0]
    numbers = np.concatenate([part.rows(0, len(part)) for part in parts])
    names = tuple(name for part in parts for name in part.names)
    return Source(numbers, pa.concat_arrays([part.keys for part in parts]), names)


def _read(path: Path, key_delimiter: str, delimiter: str) -> Source:
    check_regular(path)
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".npy":
                # NumPy warns of files that Python 2 wrote, although it reads them. It never unpickles here.
                with warnings.catch_warnings(action="ignore", category=UserWarning):
                    return _array(str(path), np.load(path, mmap_mode="r"))
            return (
                _table(path)
                if path.suffix.lower() == ".parquet"
                else _text(path, file, key_delimiter, delimiter)
            )
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", place=path) from None
    except _BROKEN as error:
        raise DataError(f"must be an array of NumPy; {reason_of(error)}", place=path) from None


def _text(path: Path, file: BinaryIO, key_delimiter: str, delimiter: str) -> Source:
    """Read lines `key<TAB>v v v`."""
    keys, rows = list[str](), list[NDArray[np.float32]]()
    for number, line in enumerate(bounded_lines(file, path), start=1):
        try:
            key, found, rest = line.decode().rstrip("\r\n").partition(key_delimiter)
        except UnicodeDecodeError:
            raise DataError("must be UTF-8 text", place=path, line=number) from None
        form = f"must be KEY{key_delimiter!r}NUMBER{delimiter!r}NUMBER..."
        DataError.require(found, form, place=path, line=number, value=key)
        cells = rest.strip(delimiter).split(delimiter)
        is_like_first = not rows or len(cells) == len(rows[0])
        rule = "must have as many numbers as line 1"
        DataError.require(is_like_first, rule, place=path, line=number, value=len(cells))
        try:
            rows.append(pa.array(cells, pa.string()).cast(pa.float32()).to_numpy())
        except pa.ArrowInvalid as error:
            raise DataError(f"must hold numbers; {reason_of(error)}", place=path, line=number) from None
        keys.append(key)
    numbers = np.stack(rows) if rows else np.zeros((0, 0), np.float32)
    return _checked(str(path), numbers, pa.array(keys, pa.string()), "line", 1)


def _table(path: Path) -> Source:
    try:
        table = pq.read_table(path, columns=[KEY, VECTOR])
        keys = table[KEY].cast(pa.string()).combine_chunks()
        lists = table[VECTOR].cast(pa.list_(pa.float32())).combine_chunks()
    except (pa.ArrowException, KeyError) as error:
        rule = f'must have the columns "{KEY}", texts, and "{VECTOR}", lists of numbers: {reason_of(error)}'
        raise DataError(rule, place=path) from None
    sizes = np.diff(lists.offsets.to_numpy())
    is_whole = not (keys.null_count or lists.null_count or lists.flatten().null_count)
    rule = "every row must have a key, and as many numbers as the first one; none may be missing"
    DataError.require(is_whole and len(set(sizes.tolist())) < 2, rule, place=path)
    numbers = lists.flatten().to_numpy().reshape(len(keys), int(sizes[0]) if len(sizes) else 0)
    return _checked(str(path), numbers, keys, "row", 0)


def _array(name: str, numbers: NDArray[Any]) -> Source:
    """Make a source of an array, whose keys are the positions."""
    is_matrix = numbers.ndim == 2 and numbers.dtype.kind in "fiub"
    rule, got = "must be numbers of the shape [vectors, numbers of each]", (numbers.dtype, numbers.shape)
    DataError.require(is_matrix, rule, place=name, value=got)
    keys = pa.array(np.arange(len(numbers))).cast(pa.string())
    return replace(_checked(name, numbers, keys, "row", 0), has_keys=False)


def _checked(name: str, numbers: NDArray[Any], keys: pa.Array, word: str, first: int) -> Source:
    """Make a source; raises DataError if it is empty."""
    DataError.require(numbers.size, "must hold at least one vector of at least one number", place=name)
    return Source(numbers, keys, ((name, word, first, len(numbers)),))
