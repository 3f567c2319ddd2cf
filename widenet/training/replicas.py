"""Every process has a copy of the hidden layers' weights; the copies are compared before they are saved."""

import socket
from collections.abc import Mapping, Sequence

from widenet.checkpoint import digest_of, replicas_of
from widenet.errors import DisagreementError
from widenet.model.network import Network
from widenet.parallel.agreement import by_value, outvoted, ranks
from widenet.parallel.group import num_processes

Digests = Mapping[str, str]


def check_replicas(network: Network, progress: str, place: str) -> None:
    """Raise DisagreementError in every process if their copies are no longer equal; every process must ask.

    Args:
        network: The network, between two steps.
        progress: What else must be equal, such as the sum of losses.
        place: Where the training is, for the message.
    """
    if num_processes() == 1:
        return
    digests = {name: digest_of(tensor) for name, tensor in replicas_of(network).items()}
    found = network.exchange.collect(
        (socket.gethostname(), {**digests, "progress": progress}), "equal copies"
    )
    if any(each != found[0][1] for _, each in found):
        raise DisagreementError(f"{place}: {_told([host for host, _ in found], [each for _, each in found])}")


def _told(hosts: Sequence[str], everyone: Sequence[Digests]) -> str:
    """Who differs from the majority, or what each has, and what to do. hosts, everyone: by rank."""
    name = next(name for name in everyone[0] if len({digests[name] for digests in everyone}) > 1)
    values = by_value([digests[name] for digests in everyone])
    odd = outvoted(["".join(digests.values()) for digests in everyone])
    if odd:
        where = ", ".join(sorted({hosts[rank] for rank in odd}))
        who = (
            f"{ranks(odd)} ({where}) computed other numbers than most, first seen in {_named(name)}"
            f" ({values})"
        )
        remedy = (
            f"Resume from the newest checkpoint without {where}, or after a test of its processor and memory."
        )
    else:
        who = f"the processes computed different numbers, first seen in {_named(name)} ({values})"
        remedy = (
            "Test the processors and memory of their machines; three or more processes can tell which one is"
            " wrong. Then resume."
        )
    return (
        f"the processes must hold equal copies of the hidden layers; {who}. No checkpoint was written."
        f" {remedy}"
    )


def _named(name: str) -> str:
    """A replica for a person, given its name in a checkpoint."""
    kind, _, rest = name.partition(".")
    kinds = {"weight": "weight", "state": "the optimizer's state", "damping": "the damping of"}
    return f'{kinds[kind]} "{rest}"' if kind in kinds else name
