"""Operations on all weights of a network between two steps: catch up, check, sum; and what overflowed."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from widenet.errors import NumericsError
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.parallel.group import check_agreement, num_processes
from widenet.training.checkpoint import digest_of, replicas_of

_NORM_ROWS = 4096
"""Rows whose squares are added at once."""


def settle(network: Network, rule: Optimizer, rates: np.ndarray, num_steps: int) -> None:
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
    in_processes = network.exchange.collect(_broken(network), "weights")
    broken = next((name for name in (*network.trunk, *network.wide) if name in in_processes), None)
    if broken is not None:
        raise NumericsError(f'the weights of "{broken}" must be finite numbers', place=place)
    if num_processes() == 1:
        return
    copies = replicas_of(network)
    digests = {name: digest_of(tensor) for name, tensor in copies.items()}
    check_agreement(network.exchange, {**digests, "progress": progress}, place)


def _broken(network: Network) -> str | None:
    """Return the first weight with an infinity or NaN in this process; None if all are finite."""
    trunk = {name: [weight.tensor] for name, weight in network.trunk.items()}
    wide = {
        name: (block for part in weight.parts.values() for block in part.blocks())
        for name, weight in network.wide.items()
    }
    tensors: dict[str, Iterable[Tensor]] = {**trunk, **wide}
    for name, blocks in tensors.items():
        if not all(bool(torch.isfinite(block).all()) for block in blocks):
            return name
    return None


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


def norms_of_weights(network: Network) -> dict[str, float | None]:
    """Return the norms of all trained weights, by "weights/" and their names; all must call this."""
    wide = [name for name, weight in network.wide.items() if weight.trained]
    terms = [network.exchange.each(partial(_squares, network, name)) for name in wide]
    squares = network.exchange.start_sum(*terms, where="norms")() if terms else []
    trunk = {name: weight.tensor.detach() for name, weight in network.trunk.items() if weight.trained}
    norms = dict(zip(wide, map(norm_of_squares, squares), strict=True))
    norms |= {name: norm_of(tensor) for name, tensor in trunk.items()}
    return {f"weights/{name}": norm for name, norm in norms.items()}


def _squares(network: Network, name: str, shard: int) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=network.device)
    for block in network.wide[name].parts[shard].blocks():
        for start in range(0, len(block), _NORM_ROWS):  # a copy in float64 is larger than the block
            total += block[start : start + _NORM_ROWS].double().square().sum()
    return total


def norm_of(tensor: Tensor) -> float | None:
    """Return the square root of the sum of squares, in the order of a contiguous tensor; None: not finite."""
    return norm_of_squares(tensor.contiguous().double().square().sum())


def norm_of_squares(squares: Tensor) -> float | None:
    """Return the square root of a sum of squares; None if it is not finite."""
    norm = math.sqrt(float(squares))
    return norm if math.isfinite(norm) else None
