"""The minimum size of a classic NetCDF file, computed from its header.

The netCDF4 library reads zeros where such a file is cut short, so its size is checked before it is read.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes per value, by type code."""


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
