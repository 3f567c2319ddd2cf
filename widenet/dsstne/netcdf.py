"""Reading and writing of NetCDF files.

Every mistake in a file becomes a DataError of one sentence. A written file appears complete or not at all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.classic import min_file_bytes
from widenet.dsstne.index_file import write_index
from widenet.dsstne.signature import begins_as_hdf5, begins_as_netcdf
from widenet.errors import DataError, unwritten
from widenet.optional import optional
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount
from widenet.stores.durable import appearing_together

with optional("netCDF4", "dsstne"):
    import netCDF4
with optional("h5py", "dsstne"):
    import h5py

    from widenet.interop.hdf5 import check_heaps, outside

REWRITE = "Write the file again."
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
            raise DataError(f"{self.path}: attribute {name!r} must be {rule}; it is missing. {REWRITE}")
        try:
            return self._source.getncattr(name)
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: attribute {name!r} must be {rule}; it cannot be read: {error}. {REWRITE}"
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
            raise DataError(f"{self.path}: attribute {name!r} must be {rule}; got {value}. {REWRITE}")
        return int(value)

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number; a missing one gives the default, if there is one.

        A float32 becomes its shortest decimal form: 0.1 rather than 0.10000000149.
        """
        if default is not None and not self.has(name):
            return default
        value = self._attribute(name, "a finite number")
        if np.ndim(value) or isinstance(value, str) or not np.isfinite(value):
            raise DataError(
                f"{self.path}: attribute {name!r} must be a finite number; got {value}. {REWRITE}"
            )
        return float(str(value))

    def text(self, name: str, default: str | None = None) -> str:
        """Read a text; a missing one gives the default, if there is one."""
        if default is not None and not self.has(name):
            return default
        value = self._attribute(name, "a text")
        if not isinstance(value, str):
            raise DataError(f"{self.path}: attribute {name!r} must be a text; got {value}. {REWRITE}")
        return value

    def choice(self, name: str, names: Sequence[str], default: str | None = None) -> str:
        """Read a code and return its name; a missing one gives the default, if there is one."""
        code = self.whole(name, default=None if default is None else names.index(default))
        if code >= len(names):
            raise DataError(
                f"{self.path}: attribute {name!r} must be a code below {len(names)}; got {code}. {REWRITE}"
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
            raise DataError(f"{self.path}: variable {name!r} {rule}; it is missing. {REWRITE}")
        if len(variable.shape) != 1 or length not in (None, variable.shape[0]):
            raise DataError(
                f"{self.path}: variable {name!r} {rule}; its shape is {list(variable.shape)}. {REWRITE}"
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
                f"{self.path}: variable {self.name!r} must hold texts; it holds {texts.dtype}. {REWRITE}"
            )
        return [str(text) for text in texts]

    def numbers(self, start: int, stop: int) -> NDArray[Any]:
        """Read the numbers from `start` to `stop` in their stored type."""
        numbers = self._read(slice(start, stop))
        if self._takes_characters and numbers.dtype == "S1":
            return numbers.view(np.int8)
        if numbers.dtype.kind not in "iuf":
            raise DataError(
                f"{self.path}: variable {self.name!r} must hold numbers; it holds {numbers.dtype}. {REWRITE}"
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
            raise DataError(f"{self.path}: variable {self.name!r} {problem}. {REWRITE}")
        try:
            return np.asarray(self._variable[extent])
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: variable {self.name!r} cannot be read: {error}. Copy or write the file again."
            ) from error


@contextmanager
def reading(path: Path) -> Iterator[NetcdfFile]:
    """Open a NetCDF file for reading.

    Raises:
        DataError: The file is missing, of another format, or damaged.
    """
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: must be a NetCDF file; it {problem}. Check the path.")
    if not begins_as_netcdf(path):
        raise DataError(
            f"{path}: must be a NetCDF file; its first bytes are those of another format. Check the path."
        )
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
            raise DataError(
                f"{path}: must be a whole NetCDF file; {reason}. Copy or write it again."
            ) from error
        yield opened


def _check_length(path: Path) -> None:
    """Raise DataError if a classic file is cut short."""
    try:
        min_bytes = min_file_bytes(path)
    except ValueError as error:
        raise DataError(
            f"{path}: must be a whole NetCDF file; it has {error}. Copy or write it again."
        ) from error
    if path.stat().st_size < min_bytes:
        raise DataError(
            f"{path}: must have at least {min_bytes:,} bytes; it has {path.stat().st_size:,}. Copy or write"
            " it again."
        )


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
        raise DataError(
            f"{path}: must be a whole NetCDF file; HDF5 cannot read it. Copy or write it again."
        ) from error
    if name is not None:
        raise DataError(f"{path}: must hold all of its data; {name!r} refers to another file. {REWRITE}")


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
        DataError: A file cannot be written.
    """
    indexes = indexes or {}
    if not path.parent.is_dir():
        raise DataError(f"{path}: its folder must exist; {path.parent} does not. Make it first.")
    if path.is_dir():
        raise DataError(f"{path}: must be a file to write; it is a directory. Choose another name.")
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
