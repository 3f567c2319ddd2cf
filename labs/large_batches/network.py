"""A small network for digits, trained with momentum at any batch size."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labs.mnist import CLASSES, PIXELS, Digits
from widenet.randomness import stream

MOMENTUM = 0.9


@dataclass(frozen=True)
class Course:
    """How a network is trained.

    Attributes:
        epochs: Number of epochs.
        batch_size: Examples of a step.
        rate: Learning rate after the warm-up.
        warmup_epochs: Epochs in which the rate grows from nearly 0; 0: none.
    """

    epochs: int
    batch_size: int
    rate: float
    warmup_epochs: float = 0.0


def trained(train: Digits, units: int, seed: int, course: Course) -> list[Tensor]:
    """Return the weights and biases of a trained network with one rectified hidden layer."""
    draw = stream(seed, "labs/large_batches/weights")
    shapes = ((PIXELS, units), (units,), (units, CLASSES), (CLASSES,))
    weights = []
    for shape in shapes:
        scale = np.sqrt(2 / shape[0]) if len(shape) == 2 else 0.0
        weights.append(
            torch.tensor(scale * draw.standard_normal(shape), dtype=torch.float32).requires_grad_()
        )
    rule = torch.optim.SGD(weights, lr=course.rate, momentum=MOMENTUM)
    pixels, labels = torch.from_numpy(train.pixels), torch.from_numpy(train.labels)
    steps_of_epoch, step = -(-len(train) // course.batch_size), 0
    for epoch in range(course.epochs):
        order = torch.from_numpy(stream(seed, "labs/large_batches/order", epoch).permutation(len(train)))
        for batch in torch.split(order, course.batch_size):
            step += 1
            share = step / max(course.warmup_epochs * steps_of_epoch, 1)
            for group in rule.param_groups:
                group["lr"] = course.rate * min(1.0, share)
            rule.zero_grad()
            torch.autograd.backward(functional.cross_entropy(logits(weights, pixels[batch]), labels[batch]))
            rule.step()
    return [weight.detach() for weight in weights]


def logits(weights: list[Tensor], pixels: Tensor) -> Tensor:
    """Return the logits of some pictures, float32 [E, 10]."""
    first, first_bias, second, second_bias = weights
    return torch.relu(pixels @ first + first_bias) @ second + second_bias


def error(networks: list[list[Tensor]], test: Digits) -> float:
    """Return the share of wrong answers of the networks' mean probabilities, in percent."""
    pixels = torch.from_numpy(test.pixels)
    probabilities = torch.stack([torch.softmax(logits(weights, pixels), dim=1) for weights in networks])
    guesses = torch.nan_to_num(probabilities.mean(dim=0)).argmax(dim=1).numpy()
    return float(100 * (guesses != test.labels).mean())
