"""Checks of the items and values that a caller passes as a history."""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import torch

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, OptionError
from widenet.sparse import SparseBatch, from_rows

LARGEST = torch.finfo(torch.float32).max


def is_list(value: Any) -> bool:
    """Whether a value is an iterable of entries: neither a text nor an array without axes."""
    return (
        isinstance(value, Iterable) and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) != 0
    )


def check_order(name: str, value: Any, reason: str) -> None:
    """Raise OptionError for a set where the order of the entries counts, which a set does not keep.

    Args:
        name: What the value is, for the message.
        value: The value.
        reason: Why the order counts, for the message.
    """
    if isinstance(value, set | frozenset):
        raise OptionError(f"must be in order, because {reason}; got a set", option=name)


def checked_items(items: Any, name: str = "items") -> list[str | int]:
    """Return a history as a list; raise OptionError unless it is a list of at least one id or title.

    Args:
        items: The history.
        name: What it is, for messages.
    """
    if not is_list(items):
        what = "the text " * isinstance(items, str)
        raise OptionError(f"must be a list of ids or titles; got {what}{items!r}", option=name)
    named = list(items)
    if not named:
        raise OptionError("must name at least one item", option=name)
    return checked_names(name, named)


def checked_names(option: str, names: Iterable[Any]) -> list[str | int]:
    """Return names as texts and whole numbers; raise OptionError about an option for another one.

    A number such as 7.0 is the whole number 7, as in tables: a column of whole numbers with gaps has such.
    """
    plain = [name.as_py() if hasattr(name, "as_py") else name for name in names]
    return [name if isinstance(name, str) else _whole(option, name) for name in plain]


def _whole(option: str, name: Any) -> int:
    """Return a number as a whole one; raise OptionError for anything else."""
    is_number = isinstance(name, Real) and not isinstance(name, bool)
    if is_number and (isinstance(name, Integral) or float(name).is_integer()):
        return int(name)
    raise OptionError(
        "must be a list of ids or titles, each a text or a whole number", option=option, value=name
    )


def checked_values(values: Any, number: int) -> list[float]:
    """Return the values of `number` items as floats.

    Raises:
        OptionError: There are more or fewer than `number` values, they have no order, or one is not a number.
        DataError: A value is not finite.
    """
    check_order("values", values, "each belongs to an item")
    listed: list[float] = list(values) if is_list(values) else [values]
    if len(listed) != number:
        raise OptionError(
            f"must be one number for each of {number} items", option="values", value=len(listed)
        )
    for value in listed:
        if not isinstance(value, Real) or isinstance(value, bool):
            raise OptionError("must be numbers", option="values", value=value)
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise DataError("must be finite numbers that a float32 can hold", option="values", value=value)
    return [float(value) for value in listed]


def named_history(
    vocabulary: Vocabulary, items: Sequence[str | int], numbers: Sequence[float] | None, is_sequence: bool
) -> SparseBatch:
    """Make a batch of one example from ids and titles; see `ordered_history`.

    Raises:
        OptionError: There are values for a sequence.
        DataError: An item is not in the vocabulary.
    """
    units = [found[0] for found in vocabulary.find_each(items)]
    units, values = ordered_history(units, numbers, is_sequence)
    return from_rows([units], None if values is None else [values])


def ordered_history(
    indices: Sequence[int], numbers: Sequence[float] | None, is_sequence: bool
) -> tuple[list[int], list[float] | None]:
    """Return a history's units and values as a batch has them.

    A sequence keeps the order of the items. Otherwise each item occurs once, with its last value, in
    ascending order.

    Raises:
        OptionError: There are values for a sequence.
    """
    if is_sequence:
        if numbers is not None:
            raise OptionError("do not go with a network that reads a sequence", option="values")
        return list(indices), None
    if numbers is None:
        return sorted(set(indices)), None
    last_position = {index: position for position, index in enumerate(indices)}
    distinct = sorted(last_position)
    return distinct, [numbers[last_position[index]] for index in distinct]
