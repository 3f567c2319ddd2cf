"""A network of two layers for digits, in float32 and in logarithmic numbers.

784 inputs, 100 rectified units, a softmax over 10 digits; plain gradient descent on the cross-entropy.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from labs.mnist import CLASSES, PIXELS
from labs.numbers.arithmetic import ZERO, Codes, LogNumbers
from labs.numbers.sums import Sums
from widenet.randomness import stream

HIDDEN = 100

Floats = NDArray[np.float32]


class Learner(Protocol):
    """A network that learns digits in some arithmetic."""

    def learn(self, pixels_EI: Floats, labels_E: NDArray[np.int64], rate: float) -> None:
        """Take one step of gradient descent."""

    def logits(self, pixels_EI: Floats) -> NDArray[np.floating]:
        """Return the logits of some pictures, [E, 10]."""


def first_weights(seed: int) -> list[Floats]:
    """Return the initial weights and biases: of the hidden layer, then of the output."""
    draw = stream(seed, "labs/numbers/weights")
    weights = [
        draw.standard_normal((n, m)) * np.sqrt(2 / n) for n, m in ((PIXELS, HIDDEN), (HIDDEN, CLASSES))
    ]
    return [
        each.astype(np.float32)
        for each in (weights[0], np.zeros((1, HIDDEN)), weights[1], np.zeros((1, CLASSES)))
    ]


def one_hot(labels_E: NDArray[np.int64]) -> Floats:
    """Return float32 [E, 10] with a 1 at every label."""
    return np.eye(CLASSES, dtype=np.float32)[labels_E]


class FloatNetwork:
    """The network in float32. With `products`, the factors of every product are logarithmic numbers.

    A product of two logarithmic numbers is exact, so it is enough to round the factors.
    """

    def __init__(self, seed: int, products: LogNumbers | None = None) -> None:
        self._weights = first_weights(seed)
        self._products = products

    def _factor(self, values: Floats) -> Floats:
        return values if self._products is None else self._products.rounded(values)

    def _product(self, left: Floats, right: Floats) -> Floats:
        return self._factor(left) @ self._factor(right)

    def _forward(self, pixels_EI: Floats) -> tuple[Floats, Floats]:
        first, first_bias, second, second_bias = self._weights
        hidden_EH = np.maximum(self._product(pixels_EI, first) + first_bias, np.float32(0))
        return hidden_EH, self._product(hidden_EH, second) + second_bias

    def logits(self, pixels_EI: Floats) -> Floats:
        """Return the logits of some pictures, float32 [E, 10]."""
        return self._forward(pixels_EI)[1]

    def learn(self, pixels_EI: Floats, labels_E: NDArray[np.int64], rate: float) -> None:
        """Take one step of gradient descent."""
        hidden_EH, logits_EK = self._forward(pixels_EI)
        exps_EK = np.exp(logits_EK - logits_EK.max(axis=1, keepdims=True))
        delta_EK = exps_EK / exps_EK.sum(axis=1, keepdims=True) - one_hot(labels_E)
        delta_EH = self._product(delta_EK, self._weights[2].T) * (hidden_EH > 0)
        gradients = [
            self._product(pixels_EI.T, delta_EH),
            delta_EH.sum(axis=0, keepdims=True),
            self._product(hidden_EH.T, delta_EK),
            delta_EK.sum(axis=0, keepdims=True),
        ]
        step = self._factor(np.full((1, 1), rate / len(labels_E), np.float32))
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight -= step * self._factor(gradient)


class LogNetwork:
    """The network in logarithmic numbers alone: weights, activations, gradients, and all sums.

    The exponential function is that of a table: the nearest number to the exact value.
    """

    def __init__(self, seed: int, numbers: LogNumbers, kahan: bool) -> None:
        self._numbers, self._kahan = numbers, kahan
        self._sums = Sums(numbers)
        self._weights = [numbers.encode(each) for each in first_weights(seed)]
        self._carries = [np.full_like(each, ZERO) for each in self._weights]

    def _add_product(self, out: Codes, left: Codes, right: Codes, carry: Codes | None = None) -> Codes:
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        if self._kahan:
            carry = np.full_like(out, ZERO) if carry is None else carry
            self._sums.add_product_kahan(out, carry, left, right)
        else:
            self._sums.add_product(out, left, right)
        return out

    def _product(self, left: Codes, right: Codes) -> Codes:
        return self._add_product(np.full((left.shape[0], right.shape[1]), ZERO), left, right)

    def _add(self, left: Codes, right: Codes) -> Codes:
        a, b = (np.ascontiguousarray(each).ravel() for each in np.broadcast_arrays(left, right))
        return self._sums.add(a, b).reshape(left.shape)

    def _forward(self, pixels_EI: Codes) -> tuple[Codes, Codes]:
        first, first_bias, second, second_bias = self._weights
        sums_EH = self._add_product(np.repeat(first_bias, len(pixels_EI), axis=0), pixels_EI, first)
        hidden_EH = np.where(sums_EH & 1, ZERO, sums_EH)
        return hidden_EH, self._add_product(np.repeat(second_bias, len(pixels_EI), axis=0), hidden_EH, second)

    def logits(self, pixels_EI: Floats) -> NDArray[np.float64]:
        """Return the logits of some pictures, float64 [E, 10]."""
        return self._numbers.decode(self._forward(self._numbers.encode(pixels_EI))[1])

    def learn(self, pixels_EI: Floats, labels_E: NDArray[np.int64], rate: float) -> None:
        """Take one step of gradient descent."""
        numbers = self._numbers
        inputs_EI = numbers.encode(pixels_EI)
        hidden_EH, logits_EK = self._forward(inputs_EI)
        delta_EK = self._add(self._softmax(logits_EK), numbers.encode(-one_hot(labels_E)))
        delta_EH = np.where(
            hidden_EH >> 1 >= -numbers.limit, self._product(delta_EK, self._weights[2].T), ZERO
        )
        ones_1E = numbers.encode(np.ones((1, len(labels_E))))
        gradients = [
            self._product(inputs_EI.T, delta_EH),
            self._product(ones_1E, delta_EH),
            self._product(hidden_EH.T, delta_EK),
            self._product(ones_1E, delta_EK),
        ]
        step = numbers.encode(np.full((1, 1), -rate / len(labels_E)))
        for weight, carry, gradient in zip(self._weights, self._carries, gradients, strict=True):
            self._add_product(weight.reshape(1, -1), step, gradient.reshape(1, -1), carry.reshape(1, -1))

    def _softmax(self, logits_EK: Codes) -> Codes:
        """Return the probabilities; a quotient is a difference of logarithms, so it is exact."""
        numbers, values_EK = self._numbers, self._numbers.decode(logits_EK)
        largest_E1 = np.take_along_axis(logits_EK, values_EK.argmax(axis=1)[:, None], axis=1)
        exps_EK = numbers.encode(np.exp(numbers.decode(self._add(logits_EK, largest_E1 ^ 1))))
        sums_E1 = self._product(exps_EK, numbers.encode(np.ones((logits_EK.shape[1], 1))))
        logs_EK = (exps_EK >> 1) - (sums_E1 >> 1)
        return np.where(logs_EK >= -numbers.limit, 2 * logs_EK, ZERO).astype(np.int32)
