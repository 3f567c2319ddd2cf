"""Compares facts between the processes of a group, and names the ranks that differ."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from widenet.errors import DisagreementError
from widenet.model.exchange import Exchange

Facts = Mapping[str, str]
"""Plain text by name, in the order in which differences are listed."""

_MOST_LISTED = 5
_LONGEST = 60
_DIGEST = re.compile("[0-9a-f]{64}")
_DIGITS = 12
"""Characters of a digest that a message shows."""


def check_agreement(exchange: Exchange, facts: Facts, remedy: str) -> None:
    """Raise DisagreementError in every process if a fact differs between them; all must call this."""
    by_rank: list[Facts] = exchange.collect(dict(facts), "agreement")
    listed = differences(by_rank)
    if listed:
        raise DisagreementError(f"The processes of this group disagree: {listed}. {remedy}")


def differences(by_rank: Sequence[Facts]) -> str:
    """List the facts that differ, each with its values and the ranks that have them; empty if none does."""
    names = list(dict.fromkeys(name for facts in by_rank for name in facts))
    listed = []
    for name in names:
        values = [facts.get(name) for facts in by_rank]
        if len(set(values)) > 1:
            listed.append(f"{name}: {by_value(values)}")
    more = [f"and {len(listed) - _MOST_LISTED} more"] if len(listed) > _MOST_LISTED else []
    return "; ".join([*listed[:_MOST_LISTED], *more])


def by_value(values: Sequence[str | None]) -> str:
    """Say which ranks have which value: "ranks 0-2, 4 have 3fa9, rank 3 has 77b0".

    Args:
        values: The value of each rank; None if it has none.
    """
    holders: dict[str | None, list[int]] = {}
    for rank, value in enumerate(values):
        holders.setdefault(value, []).append(rank)
    return ", ".join(
        f"{ranks(own)} {'has' if len(own) == 1 else 'have'} {_shortened(value)}"
        for value, own in holders.items()
    )


def _shortened(value: str | None) -> str:
    if value is None:
        return "none"
    if _DIGEST.fullmatch(value):
        return f"{value[:_DIGITS]}..."
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def ranks(numbers: Sequence[int]) -> str:
    """Format ascending ranks: "rank 3", or "ranks 0-2, 4"."""
    starts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    stops = [number for number, after in pairwise([*numbers, -2]) if after != number + 1]
    spans = zip(starts, stops, strict=True)
    listed = [f"{start}" if start == stop else f"{start}-{stop}" for start, stop in spans]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(listed)}"


def outvoted(values: Iterable[str]) -> list[int]:
    """The ranks whose value differs from that of the majority.

    Empty if all values are equal, or if no value belongs to more than half of the ranks.
    """
    by_rank = list(values)
    usual = max(by_rank, key=by_rank.count)
    if 2 * by_rank.count(usual) <= len(by_rank):
        return []
    return [rank for rank, value in enumerate(by_rank) if value != usual]
