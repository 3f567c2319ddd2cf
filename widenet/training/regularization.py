"""What the weights themselves cost under a training's penalties."""

import torch
from torch import Tensor

from widenet.model.network import Network


def regularization(network: Network, l1: float, l2: float) -> float:
    """The sum of l2 w^2 / 2 + l1 |w| over all weights, one that several layers share once; of biases
    "bias_l2" b^2 / 2 alone.

    Added up in float64 by shards, in their order, so that it is the same in every process, whatever their
    number.
    """
    exchange = network.exchange
    wide = exchange.gather(exchange.each(lambda shard: _of_shard(network, shard, l1, l2)), "regularization")
    trunk = [
        _cost(weight.tensor.detach(), l1, l2) for weight in network.trunk.values() if weight.tensor.dim() > 1
    ]
    return sum(float(each) for each in [*wide, *trunk])


def _of_shard(network: Network, shard: int, l1: float, l2: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64, device=network.device)
    for weight in network.wide.values():
        own = (0.0, weight.l2) if weight.is_bias else (l1, l2)
        for block in weight.parts[shard].blocks() if any(own) else ():
            total += _cost(block, *own)
    return total


def _cost(weight: Tensor, l1: float, l2: float) -> Tensor:
    numbers = weight.double()
    return l2 / 2 * numbers.square().sum() + l1 * numbers.abs().sum()
