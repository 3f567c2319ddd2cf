"""What the processes of a group must have in common, compared by name; what differs is named with the
ranks that have it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from widenet.errors import DisagreementError
from widenet.model.exchange import Exchange

Facts = Mapping[str, str]
"""Plain text by name, in the order in which differences are told."""

_MOST_TOLD = 5
_LONGEST = 60
_DIGEST = re.compile("[0-9a-f]{64}")
_DIGITS = 12
"""How much of a digest is shown."""


def check_agreement(exchange: Exchange, facts: Facts, remedy: str) -> None:
    """Raise DisagreementError in every process if some fact differs between them; every process of the
    exchange must ask.
    """
    everyone: list[Facts] = exchange.collect(dict(facts), "agreement")
    told = differences(everyone)
    if told:
        raise DisagreementError(f"The processes of this group disagree: {told}. {remedy}")


def differences(everyone: Sequence[Facts]) -> str:
    """The facts that differ, each with the ranks that have each value; empty if none does. everyone: by
    rank.
    """
    names = list(dict.fromkeys(name for facts in everyone for name in facts))
    told = [
        f"{name}: {by_value([facts.get(name) for facts in everyone])}"
        for name in names
        if len({f.get(name) for f in everyone}) > 1
    ]
    more = [f"and {len(told) - _MOST_TOLD} more"] if len(told) > _MOST_TOLD else []
    return "; ".join([*told[:_MOST_TOLD], *more])


def by_value(values: Sequence[str | None]) -> str:
    """Who has what, as in "ranks 0-2, 4 have 3fa9, rank 3 has 77b0". values: by rank; None: has none."""
    holders: dict[str | None, list[int]] = {}
    for rank, value in enumerate(values):
        holders.setdefault(value, []).append(rank)
    return ", ".join(
        f"{ranks(held)} {'has' if len(held) == 1 else 'have'} {shown(value)}"
        for value, held in holders.items()
    )


def shown(value: str | None) -> str:
    """A value short enough for a sentence."""
    if value is None:
        return "none"
    if _DIGEST.fullmatch(value):
        return f"{value[:_DIGITS]}..."
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def ranks(numbers: Sequence[int]) -> str:
    """Ascending ranks for a sentence: "rank 3", or "ranks 0-2, 4"."""
    starts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    stops = [number for number, after in pairwise([*numbers, -2]) if after != number + 1]
    runs = [
        f"{start}" if start == stop else f"{start}-{stop}" for start, stop in zip(starts, stops, strict=True)
    ]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(runs)}"


def outvoted(values: Iterable[str]) -> list[int]:
    """The ranks whose value is not that of more than half of all; empty if no value has such a majority,
    or all are equal.
    """
    everyone = list(values)
    usual = max(everyone, key=everyone.count)
    if 2 * everyone.count(usual) <= len(everyone):
        return []
    return [rank for rank, value in enumerate(everyone) if value != usual]
