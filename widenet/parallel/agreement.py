"""Compares facts between the processes of a group, and names the ranks and hosts that differ."""

import socket
from collections.abc import Mapping

from widenet.errors import DisagreementError
from widenet.parallel.exchange import Exchange

Facts = Mapping[str, str]
"""Plain text by name, in the order in which differences are looked for."""

_LONGEST = 60


def check_agreement(exchange: Exchange, facts: Facts, place: str | None = None) -> None:
    """Raise DisagreementError in every process if a fact differs between them; all must call this.

    Args:
        exchange: Exchange between the processes.
        facts: What must be equal.
        place: Where the training is; the error then names it before the fact.
    """
    everyone = exchange.collect((socket.gethostname(), dict(facts)), "agreement")
    for name in dict.fromkeys(name for _, own in everyone for name in own):
        holders: dict[str | None, list[str]] = {}
        for rank, (host, own) in enumerate(everyone):
            holders.setdefault(own.get(name), []).append(f"{rank} ({host})")
        if len(holders) > 1:
            values = "; ".join(
                f"{str(value)[:_LONGEST]} in process {', '.join(ranks)}" for value, ranks in holders.items()
            )
            where = name if place is None else f"{place}, {name}"
            raise DisagreementError(f"must be the same in all processes, but is {values}", place=where)
