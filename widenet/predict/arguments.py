"""What a caller in Python may give by mistake, refused in one sentence."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real

import torch

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, OptionError
from widenet.sparse import SparseBatch

LARGEST = torch.finfo(torch.float32).max


def checked_items(items: Sequence[str]) -> list[str]:
    """A history; raises OptionError where it is no list of names, or an empty one."""
    if isinstance(items, str):
        raise OptionError(
            f"items must be a list of ids or titles; got the text {items!r}. Write [{items!r}]."
        )
    named = list(items) if isinstance(items, Iterable) else [items]
    wrong = [item for item in named if not isinstance(item, str)]
    if wrong:
        raise OptionError(
            f"items must be a list of ids or titles, each as text; got {wrong[0]!r}. Write {str(wrong[0])!r}."
        )
    if not named:
        raise OptionError('items must name at least one item, such as ["The Hobbit"]; got none.')
    return named


def checked_values(values: Sequence[float], number: int) -> list[float]:
    """The values of `number` items; raises OptionError where they are not as many numbers, DataError where
    one is not finite.
    """
    given = list(values) if isinstance(values, Iterable) else [values]
    if len(given) != number:
        raise OptionError(f"values must be one number for each of {number} items; got {len(given)}.")
    for value in given:
        if not isinstance(value, Real):
            raise OptionError(f"values must be numbers; got {value!r}.")
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise DataError(
                f"values must be finite numbers that a float32 can hold; got {value!r}. Leave the item out."
            )
    return [float(value) for value in given]


def named_history(
    vocabulary: Vocabulary, items: Sequence[str], numbers: Sequence[float] | None, is_sequence: bool
) -> SparseBatch:
    """Some items as the one example of a batch: of a sequence in their order, otherwise ascending, each
    once with its last value.
    """
    named = [vocabulary.find(item)[0] for item in items]
    if is_sequence:
        if numbers is not None:
            raise OptionError("values do not go with a network that reads a sequence. Leave them out.")
        return SparseBatch.from_lists([named])
    found = {row: position for position, row in enumerate(named)}
    rows = sorted(found)
    return SparseBatch.from_lists(
        [rows], None if numbers is None else [[numbers[found[row]] for row in rows]]
    )
