"""Operations on all weights of a network between two steps: catch up, check, sum penalties."""

import socket
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from widenet.checkpoint import digest_of, replicas_of
from widenet.errors import DisagreementError, NumericsError
from widenet.model.network import Network
from widenet.model.rule import Rule, StepNumbers
from widenet.parallel.agreement import by_value, outvoted, ranks
from widenet.parallel.group import num_processes
from widenet.training.overflow import REMEDY

Digests = Mapping[str, str]


def settle(network: Network, rule: Rule, rates: np.ndarray, num_steps: int) -> None:
    """Bring all weights up to date, before anybody reads them all.

    Rows take the steps that they have skipped since a batch last touched them. Items that no step knows get
    their biases.

    Args:
        network: The network.
        rule: Its optimizer.
        rates: Learning rates of all steps, float64 [steps + 1].
        num_steps: Number of finished steps.
    """
    for weight in network.wide.values():
        weight.catch_up_all(rule, StepNumbers(num_steps + 1, rates))
    for output in network.outputs.values():
        output.set_unknown_biases()


def check_weights(network: Network, progress: str, place: str) -> None:
    """Raise if a weight is not finite, or if the processes hold different copies; all must call this.

    Args:
        network: The network, between two steps.
        progress: Further facts that must be equal, such as the sum of losses.
        place: Where the training is, for the message.

    Raises:
        NumericsError: A weight is infinite or undefined.
        DisagreementError: The processes computed different numbers.
    """
    broken = network.first_non_finite()
    if broken is not None:
        raise NumericsError(f'{place}: weights must be finite numbers; those of "{broken}" are not. {REMEDY}')
    if num_processes() == 1:
        return
    copies = replicas_of(network)
    digests = {name: digest_of(tensor) for name, tensor in copies.items()}
    by_rank = network.exchange.collect(
        (socket.gethostname(), {**digests, "progress": progress}), "equal copies"
    )
    hosts, everyone = [host for host, _ in by_rank], [own for _, own in by_rank]
    if any(own != everyone[0] for own in everyone):
        raise DisagreementError(f"{place}: {_disagreement(hosts, everyone)}")


def regularization(network: Network, l1: float, l2: float) -> float:
    """Return the penalties on all trained weights: l2 w^2 / 2 + l1 |w|, and "bias_l2" b^2 / 2 for biases.

    A weight that several layers share counts once. The shards are added in their order in float64, so the
    result does not depend on the number of processes.
    """
    exchange = network.exchange
    wide = exchange.gather(exchange.each(lambda shard: _of_shard(network, shard, l1, l2)), "regularization")
    trunk = [
        _penalty(weight.tensor.detach(), l1, l2)
        for weight in network.trunk.values()
        if weight.tensor.dim() > 1 and weight.trained
    ]
    return sum(float(penalty) for penalty in [*wide, *trunk])


def _of_shard(network: Network, shard: int, l1: float, l2: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=network.device)
    for weight in (wide for wide in network.wide.values() if wide.trained):
        strengths = (0.0, weight.l2) if weight.is_bias else (l1, l2)
        for block in weight.parts[shard].blocks() if any(strengths) else ():
            total += _penalty(block, *strengths)
    return total


def _penalty(weight: Tensor, l1: float, l2: float) -> Tensor:
    numbers = weight.double()
    return l2 / 2 * numbers.square().sum() + l1 * numbers.abs().sum()


def _disagreement(hosts: Sequence[str], everyone: Sequence[Digests]) -> str:
    """Name the processes that differ from the majority, or all values, and the remedy.

    Args:
        hosts: Host of each rank.
        everyone: Digests of each rank.
    """
    name = next(name for name in everyone[0] if len({digests[name] for digests in everyone}) > 1)
    values = by_value([digests[name] for digests in everyone])
    odd = outvoted(["".join(digests.values()) for digests in everyone])
    if odd:
        where = ", ".join(sorted({hosts[rank] for rank in odd}))
        who = (
            f"{ranks(odd)} ({where}) computed other numbers than most, first seen in {_described(name)}"
            f" ({values})"
        )
        remedy = (
            f"Resume from the newest checkpoint without {where}, or after a test of its processor and memory."
        )
    else:
        who = f"the processes computed different numbers, first seen in {_described(name)} ({values})"
        remedy = (
            "Test the processors and memory of their machines; three or more processes can tell which one is"
            " wrong. Then resume."
        )
    return (
        f"the processes must hold equal copies of the hidden layers; {who}. No checkpoint was written."
        f" {remedy}"
    )


def _described(name: str) -> str:
    """Describe a copied tensor to a person: 'weight "taste/items"' for "weight.taste/items"."""
    kind, _, rest = name.partition(".")
    kinds = {"weight": "weight", "state": "the optimizer's state", "damping": "the damping of"}
    return f'{kinds[kind]} "{rest}"' if kind in kinds else name
