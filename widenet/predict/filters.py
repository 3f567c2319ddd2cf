"""Filters: items that must not be recommended or alone may be, and weights of items, from files or values."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError, OptionError
from widenet.model.activations import definition
from widenet.predict.arguments import LARGEST, checked_names, is_list
from widenet.predict.list_rules import Ranked
from widenet.predict.top_k import Filter, Only
from widenet.regular_files import bounded_lines, check_regular
from widenet.sparse import SparseBatch

Ids: TypeAlias = str | Path | Sequence[str | int]
"""A file with one id a line, or a list of ids."""
Weights: TypeAlias = str | Path | Mapping[str | int, float]
"""A CSV file with the columns item and weight, or a number for each id."""
IdsByUser: TypeAlias = str | Path | Mapping[str | int, Sequence[str | int]]
"""A CSV file with the columns user and item, or a list of ids for each user."""
_Row: TypeAlias = tuple[str, tuple[str, ...]]
"""The place of a row, for messages, and its cells."""


def filter_of(
    output: Ranked,
    vocabulary: Vocabulary,
    never: Ids | None = None,
    only: Ids | None = None,
    weights: Weights | None = None,
) -> Filter:
    """Make the filter of an output for everybody; its tensors lie in the host's memory.

    Args:
        output: The output.
        vocabulary: The names of its items.
        never: Items that are recommended to no one.
        only: The only items that are recommended; ids that the vocabulary lacks have no effect.
        weights: Factors on scores.

    Raises:
        DataError: A file cannot be read, or an item or a weight is wrong.
        FitError: The scores may be negative, so that factors make no sense.
    """
    if weights is not None:
        check_weighable(output)
    masks = [] if never is None else [read_banned(never, vocabulary, output.width)]
    masks += [] if only is None else [~read_allowed(only, vocabulary, output.width)]
    banned_L = torch.stack(masks).any(dim=0) if masks else None
    return Filter(banned_L, None if weights is None else read_weights(weights, vocabulary, output.width))


def check_weighable(output: Ranked) -> None:
    """Raise FitError if an output's scores may be negative, so that factors make no sense."""
    if definition(output.spec.activation).signed:
        raise FitError(
            "weights need scores of at least 0, such as a sigmoid or softmax; output"
            f' "{output.spec.name}" has "{output.spec.activation.kind}".'
        )


def read_banned(never: Ids, vocabulary: Vocabulary, width: int) -> Tensor:
    """Read items that are recommended to no one; returns bool [width].

    Args:
        never: A file with one id a line, or a list of ids.
        vocabulary: The names of the items.
        width: Number of units.

    Raises:
        DataError: The file cannot be read, or an id is unknown.
    """
    banned = torch.zeros(width, dtype=torch.bool)
    banned[_indices(vocabulary, _ids("never", never))] = True
    return banned


def read_allowed(only: Ids, vocabulary: Vocabulary, width: int) -> Tensor:
    """Read the only items that are recommended, as `read_banned`; an unknown id has no effect.

    Raises:
        DataError: The file cannot be read, or no id is known.
    """
    units = vocabulary.places_of([item for _, item in _ids("only", only)])
    if not (units >= 0).any():
        raise nothing_allowed(str(only) if isinstance(only, str | PathLike) else "`only`", vocabulary)
    allowed = torch.zeros(width, dtype=torch.bool)
    allowed[units[units >= 0]] = True
    return allowed


def nothing_allowed(place: str, vocabulary: Vocabulary) -> DataError:
    """Return the error for a list of the only items, at a place, that names none of the vocabulary."""
    return DataError(
        f"{place} must name at least one of the {len(vocabulary):,} items, such as"
        f" {vocabulary.ids([0])[0]!r}; it names none. Write ids, not titles."
    )


def read_weights(weights: Weights, vocabulary: Vocabulary, width: int) -> Tensor:
    """Read factors on the scores; returns float32 [width]. Items without a factor have the factor 1.

    Args:
        weights: A CSV file with the columns item and weight, or a number for each id.
        vocabulary: The names of the items.
        width: Number of units.

    Raises:
        DataError: The file cannot be read, an id is unknown, or a weight is not a number from 0 on.
    """
    if isinstance(weights, Mapping):
        items = _listed_ids("weights", weights)
        numbers = [checked_factor(item, weight) for item, weight in weights.items()]
    else:
        rows = list(_rows(Path(weights), ("item", "weight"), header=True))
        items = [(place, item) for place, (item, _) in rows]
        numbers = [_number(place, weight) for place, (_, weight) in rows]
    factors, units = torch.ones(width), _indices(vocabulary, items)
    repeated = np.setdiff1d(np.arange(len(units)), np.unique(units, return_index=True)[1])
    if len(repeated):
        place, item = items[repeated[0]]
        raise DataError(f"{place}: the item {item!r} must have one weight; it has one before. Remove one.")
    factors[units] = torch.tensor(numbers, dtype=torch.float32)
    return factors


class PerUser:
    """Items for single users: those that they must not be shown, or the only ones that they may be shown.

    They come from a CSV file with the columns user and item, or from a list of ids for each user.

    Args:
        by_user: The file, or the lists.
        vocabulary: The names of the items.
        option: The argument that they are from, for messages.
        skips_unknown: Whether ids that the vocabulary lacks have no effect; otherwise they raise DataError.
    """

    def __init__(
        self,
        by_user: IdsByUser,
        vocabulary: Vocabulary,
        option: str = "never_for",
        skips_unknown: bool = False,
    ) -> None:
        self.units: dict[str, list[int]] = {}
        if isinstance(by_user, Mapping):
            self._name = f"`{option}`"
            rows: list[_Row] = [
                (self._name, (str(user), item))
                for user, items in by_user.items()
                for _, item in _listed_ids(option, items)
            ]
            self.units.update((str(user), []) for user in by_user)
        else:
            self._name = str(by_user)
            rows = list(_rows(Path(by_user), ("user", "item"), header=True))
        named = [(place, item) for place, (_, item) in rows]
        units = (
            vocabulary.places_of([item for _, item in named])
            if skips_unknown
            else _indices(vocabulary, named)
        )
        for (_, (user, _)), unit in zip(rows, units.tolist(), strict=True):
            self.units.setdefault(user, []).extend([unit] if unit >= 0 else [])
        self._unused = set(self.units)

    def only(self, users: Sequence[str]) -> Only:
        """The items of some users as the only ones that they may be shown; others may be shown all."""
        return Only(self.of(users), torch.tensor([user in self.units for user in users], dtype=torch.bool))

    def of(self, users: Sequence[str]) -> SparseBatch:
        """The items of some users, one row for each."""
        self._unused.difference_update(users)
        return SparseBatch.from_lists([sorted(set(self.units.get(user, []))) for user in users])

    @property
    def has_no_effect(self) -> bool:
        """Whether it is of nobody who was passed to `of`."""
        return bool(self.units) and len(self._unused) == len(self.units)

    def warning(self) -> str:
        """A sentence about users in the file that were never passed to `of`; empty if there are none."""
        if not self._unused:
            return ""
        number = f"{len(self._unused):,} of {len(self.units):,} users"
        return (
            f'{self._name}: {number} are not in the dataset, such as "{min(self._unused)}";'
            " their lines had no effect."
        )


def joined(first: SparseBatch, second: SparseBatch) -> SparseBatch:
    """Join the entries of two batches example by example, without values; a unit may occur twice."""
    examples_Z = torch.cat([first.example_of_entry(), second.example_of_entry()])
    order_Z = torch.argsort(examples_Z, stable=True)
    units_Z = torch.cat([first.indices.long(), second.indices.long()])[order_Z]
    return SparseBatch(first.indptr + second.indptr, units_Z)


def _rows(path: Path, columns: tuple[str, ...], header: bool) -> Iterator[_Row]:
    """Yield the place and the named columns of each row of a CSV file.

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
                rule = f'{path}: column "{missing[0]}" is missing; the first line has {listed}.'
                other = next((each for each in ";\t|" if each in listed), None)
                if len(names) == 1 and other is not None:
                    rule += (
                        f" Part the columns with commas, not with {other!r}, and write numbers with a point."
                    )
                    raise DataError(rule)
                raise DataError(f"{rule} Add it.")
            for row in reader:
                if not row:
                    continue
                if len(row) < len(present) or (len(row) > len(present) and not header):
                    expected = "1 column" if len(present) == 1 else f"{len(present)} columns"
                    raise DataError(
                        f"{path}: line {reader.line_num}: must have {expected}; got {len(row)}. Fix the line."
                    )
                yield f"{path}: line {reader.line_num}", tuple(row[names[name]] for name in columns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}. Check the path and the file.") from None


def _ids(option: str, ids: Ids) -> list[tuple[str, str]]:
    """The place and the id of each line of a file, or of each entry of a list."""
    if isinstance(ids, str | PathLike):
        return [(place, item) for place, (item,) in _rows(Path(ids), ("item",), header=False)]
    return _listed_ids(option, ids)


def _listed_ids(option: str, ids: Any) -> list[tuple[str, str]]:
    """The place and the id of each entry of a list; raises OptionError for anything but a list of ids."""
    if not is_list(ids):
        raise OptionError(f"{option} must have a list of ids; got {ids!r}. Write [{str(ids)!r}].")
    return [(f"`{option}`", str(item)) for item in checked_names(f"{option} must be a list of ids", ids)]


def checked_factor(item: object, weight: Any) -> float:
    """Return a factor of a dictionary of weights; raises DataError unless it is a number from 0 on."""
    number = weight.as_py() if hasattr(weight, "as_py") else weight
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    if not is_number or not 0 <= number <= LARGEST:
        raise DataError(
            f"`weights`: a weight must be a number from 0 to {LARGEST:.2g}; got {number!r} for {item!r}."
            " Write a number below 1 to show an item less, or leave the item out."
        )
    return float(number)


def _number(place: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if number < 0:
        rule = 'column "weight" must be at least 0, for never shown'
        raise DataError(f'{place}: {rule}; got "{text}". Write a number below 1 to show an item less.')
    if not number <= torch.finfo(torch.float32).max:
        raise DataError(f'{place}: column "weight" must be a finite number; got "{text}". Fix the line.')
    return number


def _indices(vocabulary: Vocabulary, items: Sequence[tuple[str, str]]) -> np.ndarray:
    """The units of items, int64; each item comes with its place for messages."""
    units = vocabulary.places_of([item for _, item in items])
    unknown = np.flatnonzero(units < 0)
    if len(unknown):
        place, item = items[unknown[0]]
        rule = f"the id {item!r} is none of the {len(vocabulary):,} items"
        remedy = "Remove it." if place.startswith("`") else "Remove it from the file."
        raise DataError(f"{place}: {rule}. {remedy}")
    return units
