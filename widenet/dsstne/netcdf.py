"""NetCDF files: opened and read with one sentence for whatever is wrong, written whole or not at all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widenet.dsstne.classic import least_bytes
from widenet.dsstne.index_file import write_index
from widenet.dsstne.signature import begins_as_hdf5, begins_as_netcdf
from widenet.durable import appearing_together
from widenet.errors import DataError
from widenet.optional import optional
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount

with optional("netCDF4", "dsstne"):
    import netCDF4
with optional("h5py", "dsstne"):
    import h5py

    from widenet.interop.hdf5 import check_heaps, outside

AGAIN = "Write the file again."
_DAMAGE = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""What the library raises of a damaged file; ValueError of names that are no UTF-8."""
_LITTLE_BYTES = 2**28
"""So many are read without a look at the memory that is free."""
_FIRST_BYTES = 4096
"""More than NetCDF writes when it makes a file."""


def as_floats(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32; those that are too large become infinite."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def as_characters(text: str) -> Any:
    """A text as an attribute of characters, which DSSTNE reads: the library would write one that is not
    ASCII as a string.
    """
    return text if text.isascii() else np.array(text.encode())


class NetcdfFile:
    """An open file; every mistake in it becomes a DataError that names the file and the place."""

    def __init__(self, path: Path, source: Any) -> None:
        self.path = path
        self._source = source
        self._attributes = set(source.ncattrs())

    def has(self, name: str) -> bool:
        """Whether the file has an attribute of that name."""
        return name in self._attributes

    def _attribute(self, name: str, rule: str) -> Any:
        if not self.has(name):
            raise DataError(f"{self.path}: attribute {name!r} must be {rule}; it is missing. {AGAIN}")
        try:
            return self._source.getncattr(name)
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: attribute {name!r} must be {rule}; it cannot be read: {error}. {AGAIN}"
            ) from error

    def whole(self, name: str, least: int = 0, default: int | None = None, most: float = np.inf) -> int:
        """A whole number of at least `least` and at most `most`; the default where it is missing, if there
        is one.
        """
        if default is not None and not self.has(name):
            return default
        rule = (
            f"a whole number of at least {least}"
            if most == np.inf
            else f"a whole number from {least} to {most}"
        )
        found = self._attribute(name, rule)
        if (
            np.ndim(found)
            or isinstance(found, str)
            or not np.isfinite(found)
            or int(found) != found
            or not least <= found <= most
        ):
            raise DataError(f"{self.path}: attribute {name!r} must be {rule}; got {found}. {AGAIN}")
        return int(found)

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number, that of a float32 as its shortest decimal form says it; the default where it is
        missing, if there is one.
        """
        if default is not None and not self.has(name):
            return default
        found = self._attribute(name, "a finite number")
        if np.ndim(found) or isinstance(found, str) or not np.isfinite(found):
            raise DataError(f"{self.path}: attribute {name!r} must be a finite number; got {found}. {AGAIN}")
        return float(str(found))

    def text(self, name: str, default: str | None = None) -> str:
        """A text; the default where it is missing, if there is one."""
        if default is not None and not self.has(name):
            return default
        found = self._attribute(name, "a text")
        if not isinstance(found, str):
            raise DataError(f"{self.path}: attribute {name!r} must be a text; got {found}. {AGAIN}")
        return found

    def choice(self, name: str, names: Sequence[str], default: str | None = None) -> str:
        """What a code stands for; the default where it is missing, if there is one."""
        code = self.whole(name, default=None if default is None else names.index(default))
        if code >= len(names):
            raise DataError(
                f"{self.path}: attribute {name!r} must be a code below {len(names)}; got {code}. {AGAIN}"
            )
        return names[code]

    def length(self, name: str) -> int | None:
        """The length of a dimension; None where there is none of that name."""
        found = self._source.dimensions.get(name)
        return None if found is None else len(found)

    def has_column(self, name: str) -> bool:
        """Whether the file has a variable of that name."""
        return name in self._source.variables

    def column(self, name: str, length: int | None = None, *, takes_characters: bool = False) -> "Column":
        """A variable of one dimension, of this length if one is given. takes_characters: characters are
        signed numbers of 8 bits.
        """
        found = self._source.variables.get(name)
        rule = "must have one dimension" if length is None else f"must hold {length:,} numbers"
        if found is None:
            raise DataError(f"{self.path}: variable {name!r} {rule}; it is missing. {AGAIN}")
        if len(found.shape) != 1 or length not in (None, found.shape[0]):
            raise DataError(
                f"{self.path}: variable {name!r} {rule}; its shape is {list(found.shape)}. {AGAIN}"
            )
        return Column(self.path, name, found, takes_characters)


class Column:
    """A variable of one dimension, read piece by piece."""

    def __init__(self, path: Path, name: str, variable: Any, takes_characters: bool = False) -> None:
        self.path, self.name = path, name
        self._variable, self._takes_characters = variable, takes_characters

    def __len__(self) -> int:
        return int(self._variable.shape[0])

    def texts(self) -> list[str]:
        """All of it, which must be texts."""
        found = self._read(slice(None))
        if found.dtype != object:
            raise DataError(
                f"{self.path}: variable {self.name!r} must hold texts; it holds {found.dtype}. {AGAIN}"
            )
        return [str(text) for text in found]

    def numbers(self, start: int, stop: int) -> NDArray[Any]:
        """The numbers from `start` to `stop`, as they are stored."""
        found = self._read(slice(start, stop))
        if self._takes_characters and found.dtype == "S1":
            return found.view(np.int8)
        if found.dtype.kind not in "iuf":
            raise DataError(
                f"{self.path}: variable {self.name!r} must hold numbers; it holds {found.dtype}. {AGAIN}"
            )
        return found

    def floats(self, start: int, stop: int) -> NDArray[np.float32]:
        """The numbers from `start` to `stop` as float32; those that are too large become infinite."""
        return as_floats(self.numbers(start, stop))

    def _read(self, wanted: slice) -> NDArray[Any]:
        least = 8 * len(range(*wanted.indices(len(self))))
        free = available_memory() if least > _LITTLE_BYTES else None
        if free is not None and least > free:
            what = f"holds {len(self):,} values, for which {amount(free)} of free memory are too few"
            raise DataError(f"{self.path}: variable {self.name!r} {what}. {AGAIN}")
        try:
            return np.asarray(self._variable[wanted])
        except _DAMAGE as error:
            raise DataError(
                f"{self.path}: variable {self.name!r} cannot be read: {error}. Copy or write the file again."
            ) from error


@contextmanager
def reading(path: Path) -> Iterator[NetcdfFile]:
    """A NetCDF file, open within; raises DataError where it is none, or is damaged."""
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: must be a NetCDF file; it {what}. Check the path.")
    if not begins_as_netcdf(path):
        raise DataError(
            f"{path}: must be a NetCDF file; its first bytes are of something else. Check the path."
        )
    if begins_as_hdf5(path):
        _check_hdf5(path)
    else:
        _check_length(path)
    with ExitStack() as stack:
        try:
            source = stack.enter_context(netCDF4.Dataset(path, "r"))
            source.set_auto_maskandscale(False)
            found = NetcdfFile(path, source)
        except _DAMAGE as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"{path}: must be a whole NetCDF file; {reason}. Copy or write it again."
            ) from error
        yield found


def _check_length(path: Path) -> None:
    """Raise DataError where a classic file is cut short."""
    try:
        needed = least_bytes(path)
    except ValueError as error:
        raise DataError(
            f"{path}: must be a whole NetCDF file; it has {error}. Copy or write it again."
        ) from error
    if path.stat().st_size < needed:
        raise DataError(
            f"{path}: must have at least {needed:,} bytes; it has {path.stat().st_size:,}. Copy or write it"
            " again."
        )


def _check_hdf5(path: Path) -> None:
    """Raise DataError if HDF5 would open paths that a file names, or read it without end."""
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
        raise DataError(
            f"{path}: must hold all that it says; {name!r} lies in another file that it names. {AGAIN}"
        )


def _check_room(beside: Path, path: Path) -> None:
    """Make a file, where that is refused with the reason: NetCDF says that permission is denied, also of a
    disk that is full.
    """
    try:
        with beside.open("xb") as file:
            file.write(bytes(_FIRST_BYTES))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written: {error.strerror}. Free some space, or choose another place."
        ) from error


@contextmanager
def writing(path: Path, indexes: Mapping[Path, Iterable[str]] | None = None) -> Iterator[Any]:
    """A new `netCDF4.Dataset` beside `path` that takes its place when the block ends, and vanishes when it
    fails.

    indexes: names of index files that are written when the block ends, and appear right before it, once all
    are whole and on disk.
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
        raise DataError(
            f"{path}: cannot be written: {error}. Free some space, or choose another place."
        ) from error
