"""DSSTNE's command `generateNetCDF`, which turns text into NetCDF data and index files.

The text has a sample on each line: `name<TAB>feature,value:feature,value`.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.data.messages import ignore_message
from widenet.dsstne.data import TYPES, Attribute
from widenet.dsstne.netcdf import as_characters, check_places, numbered_lines, read_names, writing
from widenet.errors import DataError, OptionError
from widenet.plan.numbers import decimal

WIDTH_STEP = 128
"""Widths are rounded up to a multiple of this, as in DSSTNE."""
_ENTRIES_PER_WRITE = 2**22
_UINT32_ENTRIES = 2**32


def generate(
    name: str,
    source: Path | str,
    out: Path | str,
    features: Path | str,
    samples: Path | str,
    *,
    new_features: Literal["drop", "create", "merge"] = "drop",
    analog: bool = False,
    say: Callable[[str], None] | None = None,
) -> None:
    """Turn text into a NetCDF file with one sparse data set, and write its index files.

    Memory holds the names and 4 bytes per entry (8 with `analog`).

    Args:
        name: Name of the data set.
        source: A file, or a folder whose files are all read, in the order of their names.
        out: The NetCDF file to write; an earlier file is replaced.
        features: Index file of the features.
        samples: Index file of the samples, in the order of the examples. It is created if it does not exist,
            and new samples are appended. A sample of the index file that the text lacks gets an empty row, so
            that data sets with the same index file fit together. If the text repeats a sample, its last line
            counts.
        new_features: Handling of features that are not in the index file: "drop" them, add them with "merge",
            or "create" a new index file.
        analog: Keep values; an entry without a value gets 0.
        say: Receives sentences on skipped lines and on the written data set.

    Raises:
        DataError, OptionError: No file is written.
    """
    out, features, samples = Path(out), Path(features), Path(samples)
    report = say or ignore_message
    check_places([features, out, samples])
    OptionError.require(
        new_features == "create" or features.is_file(),
        "the index file of the features does not exist",
        place=features,
    )
    text = _Text(
        index_of={} if new_features == "create" else numbered(read_names(features)),
        row_of=numbered(read_names(samples)) if samples.exists() else {},
        may_add=new_features != "drop",
        analog=analog,
    )
    for path in files_of(Path(source)):
        text.read(path)
    DataError.require(
        text.extents,
        "must hold at least one sample, `name<TAB>feature:feature`; it holds none",
        place=source,
    )
    indexes = (
        {samples: text.row_of} if new_features == "drop" else {features: text.index_of, samples: text.row_of}
    )
    with writing(out, indexes) as file:
        width = -(-max(1, len(text.index_of)) // WIDTH_STEP) * WIDTH_STEP
        num_entries = _write(file, name, width, text)
    for warning in text.warnings():
        report(warning)
    counts = (
        f"{len(text.row_of):,} examples, {len(text.index_of):,} features in a width of {width:,},"
        f" {num_entries:,} entries"
    )
    report(f"{out}: data set {name!r}: {counts}.")


@dataclass
class _Text:
    """The samples read so far.

    Attributes:
        index_of: Index of each feature; new features are added if `may_add`.
        row_of: Row of each sample; new samples are added.
        may_add: Whether new features are added.
        analog: Whether values are kept.
        indices: Indices of all entries.
        values: Values of all entries.
        extents: Start and end of each row's entries.
        skipped: Number and first place of each kind of skipped content.
    """

    index_of: dict[str, int]
    row_of: dict[str, int]
    may_add: bool
    analog: bool
    indices: "array[int]" = field(default_factory=lambda: array("I"))
    values: "array[float]" = field(default_factory=lambda: array("f"))
    extents: dict[int, tuple[int, int]] = field(default_factory=dict)
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        """Add the samples of a file."""
        for number, line in numbered_lines(path):
            self._add(line, f"{path}: line {number}")

    def _add(self, line: str, place: str) -> None:
        if not line:
            return
        sample, tab, rest = line.partition("\t")
        if not tab:
            self._skip("lines without a tab were skipped", place)
            return
        if not sample:
            raise DataError("a sample must have a name before the tab; it is empty", place=place)
        start = len(self.indices)
        for element in rest.split(":"):
            feature, *values = element.split(",")
            if not feature:
                continue
            index = self.index_of.get(feature)
            if index is None:
                if not self.may_add:
                    continue
                index = self.index_of[feature] = len(self.index_of)
            if len(values) > 1:
                self._skip("entries had more than one value; the first one was used", place)
            self.indices.append(index)
            if self.analog:
                self.values.append(_value(values[0] if values else "", place))
        self.extents[self.row_of.setdefault(sample, len(self.row_of))] = start, len(self.indices)

    def _skip(self, what: str, place: str) -> None:
        count, first = self.skipped.get(what, (0, place))
        self.skipped[what] = count + 1, first

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind of skipped content."""
        for what, (count, first) in self.skipped.items():
            yield f"{first}: {count:,} {what}; this is the first."

    def positions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return start and end of every row's entries; both are 0 for a sample that the text lacks."""
        extents = np.zeros((len(self.row_of), 2), dtype=np.int64)
        extents[list(self.extents)] = list(self.extents.values())
        return extents[:, 0], extents[:, 1]


def _value(text: str, place: str) -> float:
    """Return the float32 next to the value of an entry, rounded once; an empty one is 0, as in DSSTNE."""
    near = inf
    if decimal(text or "0") is not None:
        near = pa.scalar((text or "0").removeprefix("+")).cast(pa.float32()).as_py()
    if abs(near) == inf:
        raise DataError("a value must be a finite number of float32", place=place, value=text)
    return near


def _write(file: Any, name: str, width: int, text: _Text) -> int:
    """Write the data set row by row, and return the number of entries."""
    starts, ends = text.positions()
    lengths = ends - starts
    stops = np.cumsum(lengths)
    num_entries = int(stops[-1])
    columns: dict[str, NDArray[Any]] = {"sparseIndex0": np.frombuffer(text.indices, np.uint32)}
    if text.analog:
        columns["sparseData0"] = np.frombuffer(text.values, np.float32)
    file.setncattr("name0", as_characters(name))
    attributes = {
        "datasets": 1,
        "attributes0": Attribute.SPARSE if text.analog else Attribute.SPARSE | Attribute.BOOLEAN,
        "kind0": 0,
        "dataType0": TYPES.index("Float" if text.analog else "UInt"),
        "dimensions0": 1,
        "width0": width,
    }
    for key, value in attributes.items():
        file.setncattr(key, np.uint32(value))
    file.createDimension("examplesDim0", len(starts))
    file.createDimension("uniqueExamplesDim0", len(starts))
    file.createDimension("sparseDataDim0", max(1, num_entries))
    place = "u4" if num_entries < _UINT32_ENTRIES else "u8"
    for key, positions in (("sparseStart0", stops - lengths), ("sparseEnd0", stops)):
        file.createVariable(key, place, ("uniqueExamplesDim0",))[:] = positions
    for key, flat in columns.items():
        variable = file.createVariable(key, flat.dtype, ("sparseDataDim0",))
        if not num_entries:
            variable[:] = 0
    for variable, flat in columns.items():
        for first, last in _pieces(stops):
            at = np.repeat((ends - stops)[first:last], lengths[first:last])
            begin, stop = int((stops - lengths)[first]), int(stops[last - 1])
            file.variables[variable][begin:stop] = flat[at + np.arange(begin, stop)]
    return num_entries


def _pieces(stops: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows with up to `_ENTRIES_PER_WRITE` entries."""
    first, written = 0, 0
    while first < len(stops):
        last = max(first + 1, int(np.searchsorted(stops, written + _ENTRIES_PER_WRITE, side="right")))
        yield first, last
        first, written = last, int(stops[last - 1])


def files_of(source: Path) -> list[Path]:
    """Return the file itself, or all files of a folder, sorted by name."""
    if source.is_dir():
        paths = sorted(path for path in source.iterdir() if path.is_file())
        DataError.require(paths, "must hold files of text; it is empty", place=source)
        return paths
    DataError.require(source.is_file(), "must be a file or a folder of text; it does not exist", place=source)
    return [source]


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Return the place of each name."""
    return {name: index for index, name in enumerate(names)}
