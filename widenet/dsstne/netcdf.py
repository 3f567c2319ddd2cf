"""Reading and writing of NetCDF files.

Every mistake in a file becomes a DataError. A written file appears complete or not at all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.index_file import write_index
from widenet.dsstne.signature import begins_as_hdf5, begins_as_netcdf
from widenet.errors import DataError, OptionError, unwritten
from widenet.late_imports import optional
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount
from widenet.stores.durable import appearing_together

with optional("netCDF4", "dsstne"):
    import netCDF4
with optional("h5py", "dsstne"):
    import h5py

    from widenet.interop.hdf5 import check_heaps, outside

_DAMAGE = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that the library raises for a damaged file; ValueError for names that are not UTF-8."""
_SMALL_READ_BYTES = 2**28
"""Reads up to this size skip the check of free memory."""
_FIRST_BYTES = 4096
"""More than NetCDF writes when it creates a file."""


_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes per value, by type code."""


def as_floats(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32; numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def as_characters(text: str) -> Any:
    """Return a text in a form that the library writes as characters, which DSSTNE can read.

    Without this, the library would write text that is not ASCII as a string.
    """
    return text if text.isascii() else np.array(text.encode())


class NetcdfFile:
    """An open file; every mistake becomes a DataError that names the file and the attribute or variable."""

    def __init__(self, path: Path, source: Any) -> None:
        self.path = path
        self._source = source
        self._attributes = set(source.ncattrs())

    def has(self, name: str) -> bool:
        """Return whether the file has an attribute of that name."""
        return name in self._attributes

    def _attribute(self, name: str, rule: str) -> Any:
        if not self.has(name):
            raise DataError(f"must be {rule}; it is missing", place=f"{self.path}: attribute {name!r}")
        try:
            return self._source.getncattr(name)
        except _DAMAGE as error:
            raise DataError(
                f"must be {rule}; it cannot be read: {error}", place=f"{self.path}: attribute {name!r}"
            ) from error

    def whole(self, name: str, minimum: int = 0, default: int | None = None, maximum: float = np.inf) -> int:
        """Read a whole number in [minimum, maximum]; a missing one gives the default, if there is one."""
        if default is not None and not self.has(name):
            return default
        rule = (
            f"a whole number of at least {minimum}"
            if maximum == np.inf
            else f"a whole number from {minimum} to {maximum}"
        )
        value = self._attribute(name, rule)
        if (
            np.ndim(value)
            or isinstance(value, str)
            or not np.isfinite(value)
            or int(value) != value
            or not minimum <= value <= maximum
        ):
            raise DataError(f"must be {rule}; got {value}", place=f"{self.path}: attribute {name!r}")
        return int(value)

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number; a missing one gives the default, if there is one.

        A float32 becomes its shortest decimal form: 0.1 rather than 0.10000000149.
        """
        if default is not None and not self.has(name):
            return default
        value = self._attribute(name, "a finite number")
        if np.ndim(value) or isinstance(value, str) or not np.isfinite(value):
            raise DataError(f"must be a finite number; got {value}", place=f"{self.path}: attribute {name!r}")
        return float(str(value))

    def text(self, name: str, default: str | None = None) -> str:
        """Read a text; a missing one gives the default, if there is one."""
        if default is not None and not self.has(name):
            return default
        value = self._attribute(name, "a text")
        if not isinstance(value, str):
            raise DataError(f"must be a text; got {value}", place=f"{self.path}: attribute {name!r}")
        return value

    def choice(self, name: str, names: Sequence[str], default: str | None = None) -> str:
        """Read a code and return its name; a missing one gives the default, if there is one."""
        code = self.whole(name, default=None if default is None else names.index(default))
        if code >= len(names):
            raise DataError(
                f"must be a code below {len(names)}", place=f"{self.path}: attribute {name!r}", value=code
            )
        return names[code]

    def length(self, name: str) -> int | None:
        """Return the length of a dimension; None if it does not exist."""
        dimension = self._source.dimensions.get(name)
        return None if dimension is None else len(dimension)

    def has_column(self, name: str) -> bool:
        """Return whether the file has a variable of that name."""
        return name in self._source.variables

    def column(self, name: str, length: int | None = None, *, takes_characters: bool = False) -> "Column":
        """Return a variable of one dimension.

        Args:
            name: Its name.
            length: Its length; any length if not given.
            takes_characters: Whether characters are read as signed 8-bit numbers.

        Raises:
            DataError: The variable is missing or has another shape.
        """
        variable = self._source.variables.get(name)
        rule = "must have one dimension" if length is None else f"must hold {length:,} numbers"
        if variable is None:
            raise DataError(f"{rule}; it is missing", place=f"{self.path}: variable {name!r}")
        if len(variable.shape) != 1 or length not in (None, variable.shape[0]):
            raise DataError(
                f"{rule}; its shape is {list(variable.shape)}", place=f"{self.path}: variable {name!r}"
            )
        return Column(self.path, name, variable, takes_characters)


class Column:
    """A variable of one dimension, read piece by piece."""

    def __init__(self, path: Path, name: str, variable: Any, takes_characters: bool = False) -> None:
        self.path, self.name = path, name
        self._variable, self._takes_characters = variable, takes_characters

    def __len__(self) -> int:
        return int(self._variable.shape[0])

    def texts(self) -> list[str]:
        """Read the whole variable as texts."""
        texts = self._read(slice(None))
        if texts.dtype != object:
            raise DataError(
                f"must hold texts; it holds {texts.dtype}", place=f"{self.path}: variable {self.name!r}"
            )
        return [str(text) for text in texts]

    def numbers(self, start: int, stop: int) -> NDArray[Any]:
        """Read the numbers from `start` to `stop` in their stored type."""
        numbers = self._read(slice(start, stop))
        if self._takes_characters and numbers.dtype == "S1":
            return numbers.view(np.int8)
        if numbers.dtype.kind not in "iuf":
            raise DataError(
                f"must hold numbers; it holds {numbers.dtype}", place=f"{self.path}: variable {self.name!r}"
            )
        return numbers

    def floats(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read the numbers from `start` to `stop` as float32; numbers that are too large become infinite."""
        return as_floats(self.numbers(start, stop))

    def _read(self, extent: slice) -> NDArray[Any]:
        num_bytes = 8 * len(range(*extent.indices(len(self))))
        free = available_memory() if num_bytes > _SMALL_READ_BYTES else None
        if free is not None and num_bytes > free:
            problem = f"holds {len(self):,} values, which do not fit in {amount(free)} of free memory"
            raise DataError(f"{problem}", place=f"{self.path}: variable {self.name!r}")
        try:
            return np.asarray(self._variable[extent])
        except _DAMAGE as error:
            raise DataError(
                f"cannot be read: {error}", place=f"{self.path}: variable {self.name!r}"
            ) from error


@contextmanager
def reading(path: Path) -> Iterator[NetcdfFile]:
    """Open a NetCDF file for reading.

    Raises:
        DataError: The file is missing, of another format, or damaged.
    """
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"must be a NetCDF file; it {problem}", place=path)
    if not begins_as_netcdf(path):
        raise DataError("must be a NetCDF file; its first bytes are those of another format", place=path)
    if begins_as_hdf5(path):
        _check_hdf5(path)
    else:
        _check_length(path)
    with ExitStack() as stack:
        try:
            source = stack.enter_context(netCDF4.Dataset(path, "r"))
            source.set_auto_maskandscale(False)
            opened = NetcdfFile(path, source)
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"must be a whole NetCDF file; {reason}", place=path) from error
        yield opened


def _check_length(path: Path) -> None:
    """Raise DataError if a classic file is cut short."""
    try:
        min_bytes = min_file_bytes(path)
    except ValueError as error:
        raise DataError(f"must be a whole NetCDF file; it has {error}", place=path) from error
    if path.stat().st_size < min_bytes:
        raise DataError(f"must have at least {min_bytes:,} bytes; it has {path.stat().st_size:,}", place=path)


def _check_hdf5(path: Path) -> None:
    """Raise DataError if HDF5 cannot read a file safely.

    A damaged or malicious file could make HDF5 read in an endless loop, or open other files by path.
    """
    try:
        with path.open("rb") as raw:
            check_heaps(raw)
        with h5py.File(path, "r") as file:
            name = outside(file)
    except _DAMAGE as error:
        raise DataError("must be a whole NetCDF file; HDF5 cannot read it", place=path) from error
    if name is not None:
        raise DataError(f"must hold all of its data; {name!r} refers to another file", place=path)


def check_places(paths: Sequence[Path]) -> None:
    """Raise OptionError unless the files to write are distinct and in existing folders."""
    for number, path in enumerate(paths):
        if not path.parent.is_dir():
            raise OptionError("must be in a folder that exists", place=path)
        if path.is_dir():
            raise OptionError("must be a file to write; it is a directory", place=path)
        if path.resolve() in [other.resolve() for other in paths[:number]]:
            raise OptionError("must not be two of the files to write", place=path)


def _check_room(beside: Path, path: Path) -> None:
    """Create a file, and raise DataError with the reason if that fails.

    The NetCDF library would report a full disk as "permission denied".
    """
    try:
        with beside.open("xb") as file:
            file.write(bytes(_FIRST_BYTES))
    except OSError as error:
        raise DataError(unwritten(path, error)) from error


@contextmanager
def writing(path: Path, indexes: Mapping[Path, Iterable[str]] | None = None) -> Iterator[Any]:
    """Open a new `netCDF4.Dataset` that replaces `path` when the block ends, and is removed if it fails.

    Args:
        path: The NetCDF file.
        indexes: Names for index files. They are written when the block ends, and appear together with the
            NetCDF file once all files are complete and on disk.

    Raises:
        OptionError: A path is not that of a file in an existing folder.
        DataError: A file cannot be written.
    """
    indexes = indexes or {}
    check_places([*indexes, path])
    try:
        with appearing_together([*indexes, path]) as (*places, beside):
            _check_room(beside, path)
            with netCDF4.Dataset(beside, "w", format="NETCDF4") as target:
                target.set_auto_maskandscale(False)
                target.set_fill_off()
                yield target
            for place, names in zip(places, indexes.values(), strict=True):
                write_index(place, names)
    except RuntimeError as error:
        raise DataError(unwritten(path, error)) from error


def min_file_bytes(path: Path) -> int:
    """Return the minimum size of a classic NetCDF file: where its last value ends.

    Source: "The NetCDF Classic Format Specification", CDF-1, CDF-2 and CDF-5.

    Raises:
        ValueError: The header is cut short or damaged.
    """
    with path.open("rb") as file:
        return _Header(file, path.stat().st_size).min_file_bytes()


@dataclass(frozen=True)
class _Variable:
    shape: list[int]
    is_record: bool
    value_bytes: int
    begin: int

    @property
    def num_bytes(self) -> int:
        """Size of the variable, or of one record of a record variable."""
        return self.value_bytes * prod(self.shape)


class _Header:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size
        version = self._bytes(4)[3]
        self.count_bytes, self.offset_bytes = (8 if version == 5 else 4), (4 if version == 1 else 8)
        records = self._bytes(self.count_bytes)
        self.num_records = (
            0 if records == b"\xff" * self.count_bytes else int.from_bytes(records, "big")
        )  # all ones: unknown

    def min_file_bytes(self) -> int:
        lengths = [self._dimension() for _ in range(self._list(_DIMENSIONS))]
        self._skip_attributes()
        variables = [self._variable(lengths) for _ in range(self._list(_VARIABLES))]
        records = [each for each in variables if each.is_record]
        step = records[0].num_bytes if len(records) == 1 else sum(_padded(each.num_bytes) for each in records)
        ends = [each.begin + each.num_bytes for each in variables if not each.is_record and each.num_bytes]
        if self.num_records:
            ends += [each.begin + (self.num_records - 1) * step + each.num_bytes for each in records]
        return max(ends, default=0)

    def _dimension(self) -> int:
        self._skip_name()
        return self._count()

    def _variable(self, lengths: list[int]) -> _Variable:
        self._skip_name()
        dimensions = [self._count() for _ in range(self._checked(self._count()))]
        if any(dimension >= len(lengths) for dimension in dimensions):
            raise ValueError("a variable of a dimension that does not exist")
        self._skip_attributes()
        value_bytes = self._value_bytes()
        self._count()  # the variable's size, which the format does not state correctly for large variables
        shape = [lengths[dimension] for dimension in dimensions]
        begin = int.from_bytes(self._bytes(self.offset_bytes), "big")
        is_record = bool(shape) and shape[0] == 0
        return _Variable(shape[is_record:], is_record, value_bytes, begin)

    def _skip_attributes(self) -> None:
        for _ in range(self._list(_ATTRIBUTES)):
            self._skip_name()
            value_bytes = self._value_bytes()
            self._bytes(_padded(value_bytes * self._count()))

    def _list(self, kind: int) -> int:
        """Return the length of the list that follows, which must be of this kind."""
        tag, count = int.from_bytes(self._bytes(4), "big"), self._count()
        if tag != kind and (tag, count) != (0, 0):
            raise ValueError("a header of another form")
        return self._checked(count)

    def _skip_name(self) -> None:
        self._bytes(_padded(self._count()))

    def _value_bytes(self) -> int:
        code = int.from_bytes(self._bytes(4), "big")
        if code not in _SIZES:
            raise ValueError(f"values of the unknown type {code}")
        return _SIZES[code]

    def _count(self) -> int:
        return int.from_bytes(self._bytes(self.count_bytes), "big")

    def _checked(self, count: int) -> int:
        """Return the count if the file is large enough for that many entries of at least one byte."""
        if count > self.size:
            raise ValueError("a header that ends early")
        return count

    def _bytes(self, count: int) -> bytes:
        data = self.file.read(self._checked(count))
        if len(data) < count:
            raise ValueError("a header that ends early")
        return data


def _padded(count: int) -> int:
    return -(-count // 4) * 4
