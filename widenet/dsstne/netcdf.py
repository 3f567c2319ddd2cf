"""Reading and writing of DSSTNE's files: NetCDF, and index files with a line `name<TAB>index` for each name.

Every mistake in a file becomes a DataError. A written file appears complete or not at all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.errors import DataError, OptionError, unwritten
from widenet.late_imports import optional
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount
from widenet.regular_files import bounded_lines, check_regular
from widenet.stores.durable import appearing_together


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text without their ends, each with its number; raises DataError."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):
                yield number, line.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"must be UTF-8 text; {error.reason}", place=f"{path}: line {number}") from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", place=path) from error


def read_names(path: Path) -> list[str]:
    """Read the names in the order of their indices.

    Raises:
        DataError: The file cannot be read, a line is malformed or repeats a name, or the indices are not 0,
            1, 2 and so on.
    """
    check_regular(path)
    index_of: dict[str, int] = {}
    for number, line in numbered_lines(path):
        name, _, index = line.rpartition("\t")
        if not name or name in index_of or not (index.isascii() and index.isdecimal()):
            rule = "must be a new name, a tab and a whole number"
            raise DataError(rule, place=path, line=number, value=line)
        index_of[name] = int(index)
    is_whole = index_of and sorted(index_of.values()) == list(range(len(index_of)))
    DataError.require(is_whole, "must have the indices 0, 1, 2 and so on, each once", place=path)
    return sorted(index_of, key=index_of.__getitem__)


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


def as_floats(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Convert numbers to float32; numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _is_finite(value: Any) -> bool:
    return not np.ndim(value) and not isinstance(value, str) and bool(np.isfinite(value))


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

    def _attribute(self, name: str, rule: str, fits: Callable[[Any], bool]) -> Any:
        place = f"{self.path}: attribute {name!r}"
        DataError.require(self.has(name), f"must be {rule}; it is missing", place=place)
        try:
            value = self._source.getncattr(name)
        except _DAMAGE as error:
            raise DataError(f"must be {rule}; it cannot be read: {error}", place=place) from error
        DataError.require(fits(value), f"must be {rule}; got {value}", place=place)
        return value

    def whole(self, name: str, minimum: int = 0, default: int | None = None, maximum: float = np.inf) -> int:
        """Read a whole number in [minimum, maximum]; a missing one gives the default, if there is one."""
        if default is not None and not self.has(name):
            return default
        extent = f"of at least {minimum}" if maximum == np.inf else f"from {minimum} to {maximum}"

        def fits(value: Any) -> bool:
            return bool(_is_finite(value) and int(value) == value and minimum <= value <= maximum)

        return int(self._attribute(name, f"a whole number {extent}", fits))

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number; a missing one gives the default, if there is one.

        A float32 becomes its shortest decimal form: 0.1 rather than 0.10000000149.
        """
        if default is not None and not self.has(name):
            return default
        return float(str(self._attribute(name, "a finite number", _is_finite)))

    def text(self, name: str, default: str | None = None) -> str:
        """Read a text; a missing one gives the default, if there is one."""
        if default is not None and not self.has(name):
            return default
        return str(self._attribute(name, "a text", lambda value: isinstance(value, str)))

    def choice(self, name: str, names: Sequence[str], default: str | None = None) -> str:
        """Read a code and return its name; a missing one gives the default, if there is one."""
        code = None if default is None else names.index(default)
        return names[self.whole(name, default=code, maximum=len(names) - 1)]

    def length(self, name: str) -> int | None:
        """Return the length of a dimension; None if it does not exist."""
        dimension = self._source.dimensions.get(name)
        return None if dimension is None else len(dimension)

    def column(self, name: str, length: int | None = None, *, takes_characters: bool = False) -> "Column":
        """Return a variable of one dimension.

        Args:
            name: Its name.
            length: Its length; any length if not given.
            takes_characters: Whether characters are read as signed 8-bit numbers.

        Raises:
            DataError: The variable is missing or has another shape.
        """
        variable, place = self._source.variables.get(name), f"{self.path}: variable {name!r}"
        rule = "must have one dimension" if length is None else f"must hold {length:,} numbers"
        DataError.require(variable is not None, f"{rule}; it is missing", place=place)
        fits = len(variable.shape) == 1 and length in (None, variable.shape[0])
        DataError.require(fits, f"{rule}; its shape is {list(variable.shape)}", place=place)
        return Column(place, variable, takes_characters)


class Column:
    """A variable of one dimension, read piece by piece."""

    def __init__(self, place: str, variable: Any, takes_characters: bool = False) -> None:
        self.place = place
        self._variable, self._takes_characters = variable, takes_characters

    def __len__(self) -> int:
        return int(self._variable.shape[0])

    def numbers(self, start: int, stop: int) -> NDArray[Any]:
        """Read the numbers from `start` to `stop` in their stored type."""
        numbers = self._read(slice(start, stop))
        if self._takes_characters and numbers.dtype == "S1":
            return numbers.view(np.int8)
        rule = f"must hold numbers; it holds {numbers.dtype}"
        DataError.require(numbers.dtype.kind in "iuf", rule, place=self.place)
        return numbers

    def floats(self, start: int, stop: int) -> NDArray[np.float32]:
        """Read the numbers from `start` to `stop` as float32; numbers that are too large become infinite."""
        return as_floats(self.numbers(start, stop))

    def _read(self, extent: slice) -> NDArray[Any]:
        num_bytes = 8 * len(range(*extent.indices(len(self))))
        free = available_memory() if num_bytes > _SMALL_READ_BYTES else None
        if free is not None and num_bytes > free:
            rule = f"holds {len(self):,} values, which do not fit in {amount(free)} of free memory"
            raise DataError(rule, place=self.place)
        try:
            return np.asarray(self._variable[extent])
        except _DAMAGE as error:
            raise DataError(f"cannot be read: {error}", place=self.place) from error


@contextmanager
def reading(path: Path) -> Iterator[NetcdfFile]:
    """Open a NetCDF file for reading.

    A damaged or malicious file could make HDF5 read in an endless loop, or open other files by path: both
    are checked before the library opens it.

    Raises:
        DataError: The file is missing, of another format, damaged, or refers to other files.
    """
    check_regular(path)
    with ExitStack() as stack:
        try:
            with path.open("rb") as raw:
                check_heaps(raw)
            with h5py.File(path, "r") as file:
                name = outside(file)
            DataError.require(name is None, f"refers to another file for {name!r}", place=path)
            source = stack.enter_context(netCDF4.Dataset(path, "r"))
            source.set_auto_maskandscale(False)
            opened = NetcdfFile(path, source)
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"must be a whole NetCDF-4 file; {reason}", place=path) from error
        yield opened


def check_places(paths: Sequence[Path]) -> None:
    """Raise OptionError unless the files to write are distinct and in existing folders."""
    for number, path in enumerate(paths):
        OptionError.require(path.parent.is_dir(), "must be in a folder that exists", place=path)
        OptionError.require(not path.is_dir(), "must be a file to write; it is a directory", place=path)
        is_new = path.resolve() not in [other.resolve() for other in paths[:number]]
        OptionError.require(is_new, "must not be two of the files to write", place=path)


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
                with place.open("xb") as file:
                    file.writelines(f"{name}\t{index}\n".encode() for index, name in enumerate(names))
    except RuntimeError as error:
        raise DataError(unwritten(path, error)) from error
