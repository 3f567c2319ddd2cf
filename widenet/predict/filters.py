"""Files that say what must not be recommended, or what counts more or less."""

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
    """bool [width]: the items of a file with one id a line, which nobody is shown.

    Raises DataError for an unknown id.
    """
    rows = _rows(path, ("item",), header=False)
    banned = torch.zeros(width, dtype=torch.bool)
    banned[_indices(path, vocabulary, [(line, item) for line, (item,) in rows])] = True
    return banned


def read_weights(path: Path, vocabulary: Vocabulary, width: int) -> Tensor:
    """float32 [width]: the factors of a CSV file with the columns item and weight, at least 0; 1 for items
    that it does not name.

    Raises DataError for an unknown id, and for a weight that is no number of at least 0.
    """
    rows = list(_rows(path, ("item", "weight"), header=True))
    numbers = [_number(path, line, weight) for line, (_, weight) in rows]
    weights = torch.ones(width)
    weights[_indices(path, vocabulary, [(line, item) for line, (item, _) in rows])] = torch.tensor(
        numbers, dtype=torch.float32
    )
    return weights


class PerUser:
    """Items that one user must not be shown: a CSV file with the columns user and item."""

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        self._path = path
        rows = list(_rows(path, ("user", "item"), header=True))
        units = _indices(path, vocabulary, [(line, item) for line, (_, item) in rows])
        self.units: dict[str, list[int]] = {}
        for (_, (user, _)), unit in zip(rows, units.tolist(), strict=True):
            self.units.setdefault(user, []).append(unit)
        self._waiting = set(self.units)

    def of(self, users: Sequence[str]) -> SparseBatch:
        """The items of some users, one row a user."""
        self._waiting.difference_update(users)
        return SparseBatch.from_lists([sorted(set(self.units.get(user, []))) for user in users])

    def not_asked_for(self) -> str:
        """A sentence about the file's users whom nobody has asked for so far; empty where there are none."""
        if not self._waiting:
            return ""
        number = f"{len(self._waiting):,} of {len(self.units):,} users"
        return (
            f'{self._path}: {number} are not in the dataset, such as "{min(self._waiting)}"; their lines had'
            " no effect."
        )


def joined(first: SparseBatch, second: SparseBatch) -> SparseBatch:
    """The entries of both batches, example by example, without values; a unit may stand twice."""
    examples_Z = torch.cat([first.example_of_entry(), second.example_of_entry()])
    order_Z = torch.argsort(examples_Z, stable=True)
    units_Z = torch.cat([first.indices.long(), second.indices.long()])[order_Z]
    return SparseBatch(first.indptr + second.indptr, units_Z)


def _rows(path: Path, columns: tuple[str, ...], header: bool) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line numbers and the named columns of a CSV file; without a header the file has just these columns."""
    check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(bounded_lines(file, path))
            found = next(reader, []) if header else list(columns)
            names: Mapping[str, int] = {name: place for place, name in enumerate(found)}
            missing = [name for name in columns if name not in names]
            if missing:
                raise DataError(
                    f'{path}: column "{missing[0]}" is missing; the first line has'
                    f" {', '.join(names) or 'nothing'}. Add it."
                )
            for row in reader:
                if not row:
                    continue
                if len(row) < len(found) or (len(row) > len(found) and not header):
                    wanted = "1 column" if len(found) == 1 else f"{len(found)} columns"
                    raise DataError(
                        f"{path}: line {reader.line_num}: must have {wanted}; got {len(row)}. Fix the line."
                    )
                yield reader.line_num, tuple(row[names[name]] for name in columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. Check the path and the"
            " file."
        ) from None


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
    """The units of items, each of which has its line before it."""
    units = vocabulary.places_of([item for _, item in items])
    unknown = np.flatnonzero(units < 0)
    if len(unknown):
        line, item = items[unknown[0]]
        rule = f"the id {item!r} is not in the vocabulary of {len(vocabulary):,} features"
        raise DataError(f"{path}: line {line}: {rule}. Remove it from the file.")
    return units
