"""Replicas of a network that train on examples of their own, with weights and momentum averaged at times.

Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019; for momentum Yu, Jin and Yang, "On the
Linear Speedup Analysis of Communication Efficient Momentum SGD", ICML 2019.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labs.classifier import Examples, Floats, layers
from widenet.randomness import stream

MOMENTUM = 0.9


class Replica:
    """One copy of the network, and its optimizer.

    Args:
        start: First weights, as a vector.
        rate: Learning rate.
    """

    def __init__(self, start: Floats, rate: float) -> None:
        self.weights = [torch.tensor(layer).requires_grad_() for layer in layers(start)]
        self.rule = torch.optim.SGD(self.weights, lr=rate, momentum=MOMENTUM)

    def step(self, data: Examples) -> None:
        """Make a step with some examples."""
        first, first_bias, second, second_bias = self.weights
        hidden = torch.relu(torch.from_numpy(data.inputs) @ first + first_bias)
        self.rule.zero_grad()
        loss = functional.cross_entropy(hidden @ second + second_bias, torch.from_numpy(data.labels))
        torch.autograd.backward(loss)
        self.rule.step()

    def tensors(self) -> list[Tensor]:
        """Return what is averaged: weights and momentum, without their gradients."""
        momentum = [self.rule.state[weight]["momentum_buffer"] for weight in self.weights]
        return [*(weight.detach() for weight in self.weights), *momentum]


def average(replicas: list[Replica]) -> None:
    """Make all replicas equal to their mean."""
    by_tensor = list(zip(*(replica.tensors() for replica in replicas), strict=True))
    for copies in by_tensor:
        mean = torch.stack(copies).mean(dim=0)
        for copy in copies:
            copy.copy_(mean)


def train(
    start: Floats, data: Examples, num_replicas: int, every: int, batch_size: int, epochs: int, rate: float
) -> tuple[Floats, int]:
    """Return the mean weights after some epochs, and how often replicas were averaged.

    Each replica takes its own part of every epoch. The end of an epoch averages, too.

    Args:
        start: First weights.
        data: The training examples.
        num_replicas: Number of replicas; 1: one network.
        every: Steps between two averages.
        batch_size: Examples of a step of each replica.
        epochs: Passes over the examples.
        rate: Learning rate.
    """
    replicas, meetings = [Replica(start, rate) for _ in range(num_replicas)], 0
    num_steps = len(data.labels) // (num_replicas * batch_size)
    for epoch in range(epochs):
        order = stream(0, "labs/averaging/order", epoch).permutation(len(data.labels))
        for step in range(num_steps):
            for number, replica in enumerate(replicas):
                first = (step * num_replicas + number) * batch_size
                own = order[first : first + batch_size]
                replica.step(Examples(data.inputs[own], data.labels[own]))
            if num_replicas > 1 and ((step + 1) % every == 0 or step + 1 == num_steps):
                average(replicas)
                meetings += 1
    weights = replicas[0].tensors()[: len(replicas[0].weights)]
    return np.concatenate([weight.numpy().ravel() for weight in weights]), meetings
