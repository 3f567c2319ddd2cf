"""Checks of the items and values that a caller passes as a history."""

import math
from collections.abc import Iterable, Sequence
from numbers import Real

import torch

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, OptionError
from widenet.sparse import SparseBatch

LARGEST = torch.finfo(torch.float32).max


def checked_items(items: Sequence[str]) -> list[str]:
    """Return a history as a list; raise OptionError unless it is a list of at least one id or title."""
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
    """Return the values of `number` items as floats.

    Raises:
        OptionError: There are more or fewer than `number` values, or one is not a number.
        DataError: A value is not finite.
    """
    listed = list(values) if isinstance(values, Iterable) else [values]
    if len(listed) != number:
        raise OptionError(f"values must be one number for each of {number} items; got {len(listed)}.")
    for value in listed:
        if not isinstance(value, Real):
            raise OptionError(f"values must be numbers; got {value!r}.")
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise DataError(
                f"values must be finite numbers that a float32 can hold; got {value!r}. Leave the item out."
            )
    return [float(value) for value in listed]


def named_history(
    vocabulary: Vocabulary, items: Sequence[str], numbers: Sequence[float] | None, is_sequence: bool
) -> SparseBatch:
    """Make a batch of one example from a history.

    A sequence keeps the order of the items. Otherwise each item occurs once, with its last value, in
    ascending order.

    Raises:
        OptionError: There are values for a sequence.
        DataError: An item is not in the vocabulary.
    """
    indices = [vocabulary.find(item)[0] for item in items]
    if is_sequence:
        if numbers is not None:
            raise OptionError("values do not go with a network that reads a sequence. Leave them out.")
        return SparseBatch.from_lists([indices])
    last_position = {index: position for position, index in enumerate(indices)}
    distinct = sorted(last_position)
    values = None if numbers is None else [[numbers[last_position[index]] for index in distinct]]
    return SparseBatch.from_lists([distinct], values)
