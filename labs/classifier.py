"""A small network on generated data: what the labs train that need many short trainings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widenet.randomness import stream

INPUTS, UNITS, CLASSES = 20, 32, 10
SIZES = ((INPUTS, UNITS), (1, UNITS), (UNITS, CLASSES), (1, CLASSES))
NUM_WEIGHTS = sum(rows * columns for rows, columns in SIZES)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Examples:
    """Generated examples: float64 [E, 20], and labels int64 [E]."""

    inputs: Floats
    labels: NDArray[np.int64]


def first_weights(seed: int, purpose: str = "student") -> Floats:
    """Return the initial weights of a network, one after another in a vector."""
    draw = stream(seed, f"labs/classifier/{purpose}")
    parts = [draw.standard_normal(size) * np.sqrt(2 / size[0]) * (size[0] > 1) for size in SIZES]
    return np.concatenate([part.ravel() for part in parts])


def examples(num: int, seed: int = 0, position: int = 0) -> Examples:
    """Return random inputs, labelled by a network of the same shape with random weights."""
    inputs = stream(seed, "labs/classifier/inputs", position).standard_normal((num, INPUTS))
    return Examples(inputs, logits(2 * first_weights(seed, "teacher"), inputs).argmax(axis=1))


def layers(weights: Floats) -> list[Floats]:
    """Return views of a vector: weights and biases of the hidden layer, then of the output."""
    ends = np.cumsum([rows * columns for rows, columns in SIZES])
    return [part.reshape(size) for part, size in zip(np.split(weights, ends[:-1]), SIZES, strict=True)]


def logits(weights: Floats, inputs: Floats) -> Floats:
    """Return the logits of some inputs, float64 [E, 10]."""
    first, first_bias, second, second_bias = layers(weights)
    return np.maximum(inputs @ first + first_bias, 0) @ second + second_bias


def loss(weights: Floats, data: Examples) -> float:
    """Return the mean cross-entropy; infinity where the weights have diverged."""
    with np.errstate(all="ignore"):
        numbers = logits(weights, data.inputs)
        numbers -= numbers.max(axis=1, keepdims=True)
        chosen = numbers[np.arange(len(data.labels)), data.labels]
        mean = float((np.log(np.exp(numbers).sum(axis=1)) - chosen).mean())
    return mean if np.isfinite(mean) else float("inf")


def accuracy(weights: Floats, data: Examples) -> float:
    """Return the share of right answers."""
    return float((logits(weights, data.inputs).argmax(axis=1) == data.labels).mean())


def gradient(weights: Floats, data: Examples) -> Floats:
    """Return the gradient of the loss, as a vector like the weights."""
    first, first_bias, second, second_bias = layers(weights)
    hidden = np.maximum(data.inputs @ first + first_bias, 0)
    numbers = hidden @ second + second_bias
    exps = np.exp(numbers - numbers.max(axis=1, keepdims=True))
    delta = exps / exps.sum(axis=1, keepdims=True)
    delta[np.arange(len(data.labels)), data.labels] -= 1
    delta /= len(data.labels)
    below = (delta @ second.T) * (hidden > 0)
    parts = (data.inputs.T @ below, below.sum(axis=0), hidden.T @ delta, delta.sum(axis=0))
    return np.concatenate([part.ravel() for part in parts])
