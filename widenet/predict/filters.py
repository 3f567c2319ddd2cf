"""Reads files of filters: items that must not be recommended, and weights of items."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError
from widenet.regular_files import bounded_lines, check_regular
from widenet.sparse import SparseBatch


def read_banned(path: Path, vocabulary: Vocabulary, width: int) -> Tensor:
    """Read items that are recommended to no one, from a file with one id a line; returns bool [width].

    Raises:
        DataError: The file cannot be read, or has an unknown id.
    """
    rows = _rows(path, ("item",), header=False)
    banned = torch.zeros(width, dtype=torch.bool)
    banned[_indices(path, vocabulary, [(line, item) for line, (item,) in rows])] = True
    return banned


def read_weights(path: Path, vocabulary: Vocabulary, width: int) -> Tensor:
    """Read factors on the scores from a CSV file with the columns item and weight; returns float32 [width].

    Items that the file does not name have the factor 1.

    Raises:
        DataError: The file cannot be read, has an unknown id, or a weight that is not a number from 0 on.
    """
    rows = list(_rows(path, ("item", "weight"), header=True))
    numbers = [_number(path, line, weight) for line, (_, weight) in rows]
    weights = torch.ones(width)
    weights[_indices(path, vocabulary, [(line, item) for line, (item, _) in rows])] = torch.tensor(
        numbers, dtype=torch.float32
    )
    return weights


class PerUser:
    """Items that single users must not be shown, read from a CSV file with the columns user and item."""

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        self._path = path
        rows = list(_rows(path, ("user", "item"), header=True))
        units = _indices(path, vocabulary, [(line, item) for line, (_, item) in rows])
        self.units: dict[str, list[int]] = {}
        for (_, (user, _)), unit in zip(rows, units.tolist(), strict=True):
            self.units.setdefault(user, []).append(unit)
        self._unused = set(self.units)

    def of(self, users: Sequence[str]) -> SparseBatch:
        """The items of some users, one row for each."""
        self._unused.difference_update(users)
        return SparseBatch.from_lists([sorted(set(self.units.get(user, []))) for user in users])

    def warning(self) -> str:
        """A sentence about users in the file that were never passed to `of`; empty if there are none."""
        if not self._unused:
            return ""
        number = f"{len(self._unused):,} of {len(self.units):,} users"
        return (
            f'{self._path}: {number} are not in the dataset, such as "{min(self._unused)}";'
            " their lines had no effect."
        )


def joined(first: SparseBatch, second: SparseBatch) -> SparseBatch:
    """Join the entries of two batches example by example, without values; a unit may occur twice."""
    examples_Z = torch.cat([first.example_of_entry(), second.example_of_entry()])
    order_Z = torch.argsort(examples_Z, stable=True)
    units_Z = torch.cat([first.indices.long(), second.indices.long()])[order_Z]
    return SparseBatch(first.indptr + second.indptr, units_Z)


def _rows(path: Path, columns: tuple[str, ...], header: bool) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line number and the named columns of each row of a CSV file.

    Without a header the file must have exactly these columns.
    """
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(bounded_lines(file, path))
            present = next(reader, []) if header else list(columns)
            names: Mapping[str, int] = {name: position for position, name in enumerate(present)}
            missing = [name for name in columns if name not in names]
            if missing:
                listed = ", ".join(names) or "nothing"
                raise DataError(
                    f'{path}: column "{missing[0]}" is missing; the first line has {listed}. Add it.'
                )
            for row in reader:
                if not row:
                    continue
                if len(row) < len(present) or (len(row) > len(present) and not header):
                    expected = "1 column" if len(present) == 1 else f"{len(present)} columns"
                    raise DataError(
                        f"{path}: line {reader.line_num}: must have {expected}; got {len(row)}. Fix the line."
                    )
                yield reader.line_num, tuple(row[names[name]] for name in columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}. Check the path and the file.") from None


def _number(path: Path, line: int, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number < 0:
        rule = 'column "weight" must be at least 0, for never shown'
        raise DataError(
            f'{path}: line {line}: {rule}; got "{text}". Write a number below 1 to show an item less.'
        )
    if not number <= torch.finfo(torch.float32).max:
        raise DataError(
            f'{path}: line {line}: column "weight" must be a finite number; got "{text}". Fix the line.'
        )
    return number


def _indices(path: Path, vocabulary: Vocabulary, items: Sequence[tuple[int, str]]) -> np.ndarray:
    """The units of items, int64; each item comes with its line number for messages."""
    units = vocabulary.places_of([item for _, item in items])
    unknown = np.flatnonzero(units < 0)
    if len(unknown):
        line, item = items[unknown[0]]
        rule = f"the id {item!r} is not in the vocabulary of {len(vocabulary):,} features"
        raise DataError(f"{path}: line {line}: {rule}. Remove it from the file.")
    return units
