"""Replicas of a network that train on examples of their own, and are averaged every few steps (local SGD).

Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. The optimizer's state is averaged, too:
for momentum Yu, Jin and Yang, "On the Linear Speedup Analysis of Communication Efficient Momentum SGD", ICML
2019; for second moments Chen, Li and Li, "Toward Communication Efficient Adaptive Gradient Method", 2020.
After an average all replicas are equal, so that a checkpoint holds one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from widenet.checkpoint import replicas_of
from widenet.errors import WidenetError
from widenet.model.exchange import Exchange
from widenet.model.network import Network
from widenet.plan.averaging import AVERAGED_NUMBERS
from widenet.spec.training import Averaging

T = TypeVar("T")


class Replicas:
    """The replicas of a training that this process holds; a training without averaging has one.

    Attributes:
        networks: The network of each replica. The first one is evaluated and saved.
        losses: By replica, the losses of its steps since the last average.
    """

    def __init__(
        self, networks: Sequence[Network], averaging: Averaging | None = None, group: Exchange | None = None
    ) -> None:
        """Take the networks of this process's replicas, which need not be equal yet.

        Args:
            networks: Networks of the replicas, in order.
            averaging: How often they are averaged; None without averaging.
            group: Exchange that has a replica in the place of a shard; None without averaging.
        """
        self.networks, self.group = networks, group
        self.numbers = [0] if group is None else group.each(lambda replica: replica)
        self.every = 1 if averaging is None else averaging.every
        self.losses: list[list[float]] = [[] for _ in networks]
        self.failure: WidenetError | None = None

    def begin(self) -> None:
        """Make all networks equal to the first one, with their optimizer state."""
        first, *others = ([*_tensors(network)] for network in self.networks)
        for other in others:
            for tensor, source in zip(other, first, strict=True):
                tensor.copy_(source)

    def step(self, batches: Sequence[T], make: Callable[[Network, T], float]) -> None:
        """Let every replica make a step; after an error, none makes another one.

        Args:
            batches: The batch of each replica.
            make: Makes a step and returns its loss.
        """
        try:
            for network, batch, losses in zip(self.networks, batches, self.losses, strict=True):
                if self.failure is None:
                    losses.append(make(network, batch))
        except WidenetError as error:
            self.failure = error

    def meet(self, settle: Callable[[Network], None]) -> list[list[float]]:
        """Average all replicas; return the losses of each since the last average, in the order of replicas.

        Args:
            settle: Brings all rows of a network up to date.

        Raises:
            WidenetError: The error of a step, in all processes.
        """
        own, self.losses = (self.losses, self.failure), [[] for _ in self.networks]
        everyone = [own] if self.group is None else self.group.collect(own, "averaging")
        for _, failure in everyone:
            if failure is not None:
                raise failure
        if self.group is not None:
            with torch.no_grad():
                for network in self.networks:
                    settle(network)
                self._average(self.group)
        return [losses for of_process, _ in everyone for losses in of_process]

    def _average(self, group: Exchange) -> None:
        vectors = [[_flat(tensor) for tensor in _tensors(network, changed=True)] for network in self.networks]
        for bundle in _bundles([len(vector) for vector in vectors[0]]):
            pieces = [[own[number][start:stop] for number, start, stop in bundle] for own in vectors]
            mean = group.mean([torch.cat(of_replica) for of_replica in pieces], "averaging")
            values = torch.split(mean, [stop - start for _, start, stop in bundle])
            for of_replica in pieces:
                for piece, averaged in zip(of_replica, values, strict=True):
                    piece.copy_(averaged)


def _tensors(network: Network, changed: bool = False) -> Iterator[Tensor]:
    """Yield the tensors of a network and its optimizer, in an order that the layout determines.

    Args:
        network: The network.
        changed: Whether to leave out those that no step changes, or that are equal in all replicas once the
            rows are up to date.
    """
    for weight in network.wide.values():
        for part in weight.parts.values() if weight.trained or not changed else ():
            yield from (
                tensor for tensor in part.tensors().values() if tensor.is_floating_point() or not changed
            )
    yield from (tensor.detach() for tensor in replicas_of(network).values())
    for parts in network.pieces.by_shard.values():
        yield from (state for part in parts for state in part.state.values())


def _flat(tensor: Tensor) -> Tensor:
    """Return a view of a tensor [N], or of its transpose if that is contiguous."""
    return (tensor if tensor.is_contiguous() else tensor.T).view(-1)


def _bundles(lengths: Sequence[int]) -> Iterator[list[tuple[int, int, int]]]:
    """Cut vectors of some lengths into pieces (number, start, stop), and yield some at a time."""
    bundle, room = [], AVERAGED_NUMBERS
    for number, length in enumerate(lengths):
        start = 0
        while start < length:
            stop = min(length, start + room)
            bundle.append((number, start, stop))
            start, room = stop, room - (stop - start)
            if not room:
                yield bundle
                bundle, room = [], AVERAGED_NUMBERS
    if bundle:
        yield bundle
