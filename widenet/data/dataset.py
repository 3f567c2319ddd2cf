"""Datasets: directories of examples, memory-mapped, whose rows can be read in any order."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import Location, checked_positions, typed
from widenet.data.attributes import Attributes, aside_file, attributes_file
from widenet.data.described import Described, described_file
from widenet.data.manifest import PARTS, Field, Manifest, Part, column, value_column
from widenet.data.mapped import FixedColumn, ListColumn, MappedFile
from widenet.data.rules import check_indices
from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError, OptionError, did_you_mean, nearest
from widenet.pictures.html import tag
from widenet.stores.folders import readable

if TYPE_CHECKING:  # a split reads no batch, and torch takes seconds to load
    from torch import Tensor

    from widenet.sparse import SparseBatch

_INT32_WIDTHS = 2**31
_ROWS_PER_COUNT = 16_384

_File = TypeVar("_File")

RowNumbers = Sequence[int] | np.ndarray | slice
"""Numbers of examples, each in [0, num_examples), or a slice."""


class Dataset:
    """A dataset directory, opened for reading; reading a batch loads only its own pages."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self.fields = MappingProxyType(manifest.fields)
        self._files = [MappedFile(path / name, manifest.files[name]) for name in manifest.example_files]
        self._ids = ListColumn(self._files, "id", pa.string())
        self._lists: dict[str, ListColumn] = {}
        self._dense: dict[str, FixedColumn] = {}
        self._opened: dict[str, Any] = {}
        if manifest.has_weights:
            self._dense["weight"] = FixedColumn(self._files, "weight", pa.float32())
        for field in manifest.fields.values():
            self._map(field)
        held, rule = self._ids.num_rows, f"must hold {manifest.num_examples:,} examples"
        DataError.require(held == manifest.num_examples, rule, place=path, value=held)

    def _map(self, field: Field) -> None:
        if field.kind == "dense":
            self._dense[field.name] = FixedColumn(
                self._files, field.name, pa.list_(pa.float32(), field.width)
            )
            return
        for part in field.parts:
            name = column(field.name, part)
            self._lists[name] = ListColumn(self._files, name, pa.list_(pa.uint32()))
            if field.has_values:
                beside = value_column(field.name, part)
                self._lists[beside] = ListColumn(self._files, beside, pa.list_(pa.float32()))

    @classmethod
    @typed
    def open(cls, path: Location) -> "Dataset":
        """Open a dataset directory, or a local copy of one in a store.

        Raises:
            DataError: It is not a dataset, or is damaged.
            StoreError: The store refuses, or has no dataset there.
        """
        folder = readable(path, "dataset")
        return cls(folder, Manifest.read(folder))

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name} {field.width:,}" for field in self.fields.values())
        return f"Dataset({str(self.path)!r}, {self.num_examples:,} examples, {fields})"

    def __fspath__(self) -> str:
        """The directory, so that a dataset can be used as a path."""
        return str(self.path)

    def _repr_html_(self) -> str:
        """A table of the fields and their parts, for notebooks."""
        return tag("div", tag("p", f"{self.path}: {self.num_examples:,} examples"), self.manifest.as_table())

    @property
    def num_examples(self) -> int:
        """Number of examples."""
        return self.manifest.num_examples

    @property
    def digest(self) -> str:
        """SHA-256 over the manifest's checksums of the example files: equal for equal examples."""
        checksums = [self.manifest.files[name].sha256 for name in self.manifest.example_files]
        return hashlib.sha256("\n".join(checksums).encode()).hexdigest()

    def field(self, name: str) -> Field:
        """The description of a field; raises DataError that suggests a name if there is no such field."""
        if name not in self.fields:
            raise DataError(f"{self.path}: field {name!r} does not exist.{did_you_mean(name, self.fields)}")
        return self.fields[name]

    def rows(self, field: str, rows: RowNumbers, part: Part = "train") -> "SparseBatch | Tensor":
        """Read one field of some examples, in the order of `rows`.

        Args:
            field: Name of the field.
            rows: E whole numbers, each in [0, num_examples), or a slice.
            part: The part to read of a sparse field or a sequence.

        Returns:
            For a dense field, a float32 Tensor [E, width]. Otherwise a SparseBatch, whose indices are int32,
            or int64 if the width exceeds 2^31. They ascend within a row; those of a sequence keep its order.

        Raises:
            DataError: The field is unknown, or an index is not below its width.
            FitError: The field does not have the part.
            OptionError: A row number is wrong, or there is no such part.
        """
        if self.field(field).kind == "dense":
            return self.dense(field, rows)
        return self.sparse(field, rows, part)

    def sparse(self, field: str, rows: RowNumbers, part: Part = "train") -> "SparseBatch":
        """As `rows`, for a sparse field or a sequence; raises FitError for a dense one."""
        import torch

        from widenet.sparse import SparseBatch

        known = self.sparse_field(field, part)
        rows = self._row_numbers(rows)
        entries, indptr = self._entries(known, part, rows)
        indices = entries.view(np.int32) if known.width <= _INT32_WIDTHS else entries.astype(np.int64)
        values = None
        if known.has_values:
            stored, _ = self._lists[value_column(field, part)].gather(rows)
            values = torch.from_numpy(stored.view(np.float32))
        return SparseBatch(torch.from_numpy(indptr), torch.from_numpy(indices), values)

    def dense(self, field: str, rows: RowNumbers) -> "Tensor":
        """As `rows`, for a dense field: float32 [E, width]; raises FitError for a sparse one."""
        import torch

        known = self.field(field)
        place = f"{self.path}: fields.{field}"
        FitError.require(known.kind == "dense", "must be dense here", place=place, value=known.kind)
        return torch.from_numpy(self._dense[field].gather(self._row_numbers(rows), known.width))

    def weights(self, rows: RowNumbers) -> "Tensor | None":
        """Example weights for the loss, float32 [E]; None if the dataset has none."""
        import torch

        if not self.manifest.has_weights:
            return None
        return torch.from_numpy(self._dense["weight"].gather(self._row_numbers(rows), 1)[:, 0])

    def ids(self, rows: RowNumbers) -> list[str]:
        """The examples' own names."""
        return self._ids.texts(self._row_numbers(rows))

    def rows_of(self, names: Sequence[str]) -> np.ndarray:
        """Find the rows of examples by their names, int64 [len(names)], reading all names once.

        Raises:
            DataError: There is no example of one of these names.
        """
        names = [str(name) for name in names]
        distinct, start = pa.array(dict.fromkeys(names), pa.string()), 0
        row_of: dict[str, int] = {}
        for batch in self.record_batches():
            places = pc.index_in(batch.column("id"), value_set=distinct)
            rows = pc.indices_nonzero(places.is_valid())
            found = distinct.take(places.take(rows)).to_pylist()
            for name, row in zip(found, rows.to_pylist(), strict=True):
                row_of.setdefault(name, start + row)
            start += batch.num_rows
        unknown = next((name for name in names if name not in row_of), None)
        if unknown is None:
            return np.array([row_of[name] for name in names], dtype=np.int64)
        raise DataError(f'{self.path}: no {self.manifest.words.example} is called "{unknown}".')

    def entry_counts(self, field: str, rows: RowNumbers, part: Part = "train") -> np.ndarray:
        """Number of stored entries of some examples, int64 [E]; does not read the entries."""
        self.sparse_field(field, part)
        return self._lists[column(field, part)].extents(self._row_numbers(rows))[2]

    def counts(self, field: str, part: Part = "train") -> np.ndarray:
        """Interactions of each feature over all examples, int64 [width]."""
        counts = np.zeros(self.sparse_field(field, part).width, dtype=np.int64)
        for start in range(0, self.num_examples, _ROWS_PER_COUNT):
            rows = self._row_numbers(slice(start, start + _ROWS_PER_COUNT))
            entries, _ = self._entries(self.fields[field], part, rows)
            np.add.at(counts, entries, 1)
        return counts

    def vocabulary(self, field: str) -> Vocabulary:
        """The vocabulary of a field; raises DataError if the dataset does not have one."""
        names = self._opened_file(self.field(field).vocabulary, Vocabulary.open)
        if names is None:
            raise DataError("has no vocabulary", place=f"{self.path}: fields.{field}")
        return names

    def attributes(self, field: str) -> Attributes | None:
        """The attributes of a field's features; None if the dataset has none.

        Raises:
            DataError: There is no such field, or the attributes are damaged.
        """
        known = self.field(field)
        return self._opened_file(attributes_file(known.name), Attributes.open, known.width)

    def described(self, field: str) -> Described | None:
        """The descriptions of a field's features; None if the dataset has none.

        Raises:
            DataError: There is no such field, or the descriptions are damaged.
        """
        known = self.field(field)
        return self._opened_file(described_file(known.name), Described.open, known.width)

    def _opened_file(
        self, name: str | None, open_file: Callable[..., _File], *arguments: int
    ) -> _File | None:
        """A file beside the examples, opened once; None if the manifest does not list it."""
        stated = None if name is None else self.manifest.files.get(name)
        if name is None or stated is None:
            return None
        if name not in self._opened:
            self._opened[name] = open_file(self.path / name, *arguments, stated.sha256)
        found: _File = self._opened[name]
        return found

    def described_rows(self, field: str, names: Sequence[str]) -> "SparseBatch":
        """The attributes of every feature of a field, over those of some descriptions; see `Described.rows`.

        Raises:
            DataError: There is no such description, or it is damaged.
        """
        described = self.described(field)
        missing = next((name for name in names if described is None or name not in described.widths), None)
        if described is None or missing is not None:
            raise DataError(f'{self.path}: field {field!r} has no description "{missing}".')
        return described.rows(names)

    @property
    def beside(self) -> list[Path]:
        """The files of attributes: of features, of items that are none, and for networks."""
        kinds = attributes_file, aside_file, described_file
        names = [name(field) for field in self.fields for name in kinds]
        return [self.path / name for name in names if name in self.manifest.files]

    def record_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all columns of all examples in order, as they are stored, memory-mapped."""
        for file in self._files:
            yield from map(file.check_batch, file.batches)

    def sparse_field(self, name: str, part: Part) -> Field:
        """The description of a sparse field or a sequence that has a part.

        Raises:
            DataError: The field is unknown.
            FitError: The field is dense, or does not have the part.
            OptionError: There is no such part.
        """
        field = self.field(name)
        if part not in PARTS:
            raise OptionError(f"part must be one of {', '.join(PARTS)}; got {part!r}.{nearest(part, PARTS)}")
        place = f"{self.path}: fields.{name}"
        FitError.require(field.kind != "dense", "must be sparse here; it is dense", place=place)
        FitError.require(part in field.parts, f"must have a {part} part", place=place, value=field.parts)
        return field

    def _entries(self, field: Field, part: Part, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices uint32 [Z] and row starts int64 [E + 1]; raises DataError for an index beyond the width."""
        entries, indptr = self._lists[column(field.name, part)].gather(rows)
        check_indices(entries, field.width, f"{self.path}: field {field.name!r}")
        return entries, indptr

    def _row_numbers(self, rows: RowNumbers) -> np.ndarray:
        if isinstance(rows, slice):
            return np.arange(*rows.indices(self.num_examples), dtype=np.int64)
        return checked_positions(str(self.path), "rows", rows, self.num_examples)
