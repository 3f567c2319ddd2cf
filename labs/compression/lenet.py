"""LeNet-300-100 on MNIST: trained, pruned and retrained, with shared values that are trained as well."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from labs.compression.storage import Shared, Sizes, largest, share_values, sizes
from labs.mnist import CLASSES, PIXELS, Digits
from widenet.randomness import stream

SHAPES = ((300, PIXELS), (100, 300), (CLASSES, 100))
KEPT = (0.08, 0.09, 0.26)
"""Share of each layer's weights that stays, as published for this network."""

BITS = 6
BATCH_SIZE = 128


@dataclass
class LeNet:
    """The network.

    Attributes:
        weights: float32 [units, inputs] of each layer.
        biases: float32 [units] of each layer.
        masks: Which weights stay, by layer; empty before pruning.
        shared: Centres of each layer, and which of them each weight has; empty before they are shared.
    """

    weights: list[Tensor]
    biases: list[Tensor]
    masks: list[Tensor] = field(default_factory=list)
    centres: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)

    @classmethod
    def drawn(cls, seed: int) -> "LeNet":
        """Return an untrained network."""
        draw = stream(seed, "labs/compression/weights")
        drawn = [draw.standard_normal(shape) * np.sqrt(2 / shape[1]) for shape in SHAPES]
        weights = [torch.tensor(each, dtype=torch.float32, requires_grad=True) for each in drawn]
        return cls(weights, [torch.zeros(shape[0], requires_grad=True) for shape in SHAPES])

    def logits(self, pixels: Tensor) -> Tensor:
        """Return the logits of some pictures, float32 [E, 10]."""
        values = pixels
        for number, bias in enumerate(self.biases):
            values = functional.linear(values, self.matrix(number), bias)
            values = torch.relu(values) if number < len(SHAPES) - 1 else values
        return values

    def matrix(self, number: int) -> Tensor:
        """Return a layer's weights as they are multiplied."""
        if self.centres:
            padded = torch.cat([torch.zeros(1), self.centres[number]])
            return padded[self.places[number]]
        return self.weights[number] * self.masks[number] if self.masks else self.weights[number]

    def prune(self) -> None:
        """Keep the largest weights of each layer."""
        flat = [weight.detach().numpy().ravel() for weight in self.weights]
        self.masks = [
            torch.from_numpy(largest(each, kept).reshape(shape)).float()
            for each, kept, shape in zip(flat, KEPT, SHAPES, strict=True)
        ]

    def share(self) -> None:
        """Let the weights of each layer share 2^BITS values, which are then what is trained."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            kept = mask.bool().numpy().ravel()
            found = share_values(weight.detach().numpy().ravel(), kept, BITS)
            places = np.zeros(len(kept), np.int64)
            places[kept] = found.places + 1
            self.centres.append(torch.tensor(found.centres, requires_grad=True))
            self.places.append(torch.from_numpy(places.reshape(mask.shape)))

    def stored(self) -> Sizes:
        """Return the bytes of each rung; biases stay float32."""
        total = Sizes(*[4 * sum(len(bias) for bias in self.biases)] * 4)
        for centres, places in zip(self.centres, self.places, strict=True):
            flat = places.numpy().ravel()
            shared = Shared(flat > 0, flat[flat > 0] - 1, centres.detach().numpy())
            total += sizes(shared, BITS)
        return total

    def learn(self, train: Digits, epochs: int, rate: float, seed: int, phase: str) -> None:
        """Train by Adam what the network consists of now; the rate falls to a tenth in the last third."""
        numbers = [*(self.centres or self.weights), *self.biases]
        rule = torch.optim.Adam(numbers, lr=rate)
        pixels, labels = torch.from_numpy(train.pixels), torch.from_numpy(train.labels)
        for epoch in range(epochs):
            for group in rule.param_groups:
                group["lr"] = rate if epoch < 2 * epochs / 3 else rate / 10
            order = torch.from_numpy(stream(seed, f"labs/compression/{phase}", epoch).permutation(len(train)))
            for batch in torch.split(order, BATCH_SIZE):
                rule.zero_grad()
                torch.autograd.backward(functional.cross_entropy(self.logits(pixels[batch]), labels[batch]))
                rule.step()

    def error(self, test: Digits) -> float:
        """Return the share of wrong answers, in percent."""
        with torch.no_grad():
            guesses: NDArray[np.int64] = self.logits(torch.from_numpy(test.pixels)).argmax(dim=1).numpy()
        return float(100 * (guesses != test.labels).mean())
