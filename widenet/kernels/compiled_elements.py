"""The optimizers' steps of single numbers, for Numba: the arithmetic of `step` in model/optimizers.py.

They stand apart from it so that helper processes compile them without loading torch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Element = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any, Any]]
"""The step of one number: (weight, gradient, state 1, state 2, constants) -> (weight, state 1, state 2).

All are float32, and `constants` is an array. A state that the optimizer lacks is passed through. The function
may use only arithmetic, numpy.sqrt and conditions.
"""


def _sgd(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    return w - c[0] * g, s, t


def _momentum(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    velocity = c[0] * s + g
    ahead = c[1] * velocity + g
    return w - c[2] * (ahead if c[1] > 0 else velocity), velocity, t


def _adagrad(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    total = s + g * g
    held = c[2] if total < c[2] else total
    return w - c[0] * (g / (np.sqrt(held) + c[1])), total, t


def _rmsprop(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    square = c[0] * s + c[1] * (g * g)
    held = c[4] if square < c[4] else square
    return w - c[3] * (g / (np.sqrt(held) + c[2])), square, t


def _adadelta(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    square = c[0] * s + c[1] * (g * g)
    step_held, held = c[4] if t < c[4] else t, c[4] if square < c[4] else square
    change = np.sqrt(step_held + c[2]) / np.sqrt(held + c[2]) * g
    return w - c[3] * change, square, c[0] * t + c[1] * (change * change)


def _adam(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
    mean = s + c[0] * (g - s)
    square = c[1] * t + c[2] * (g * g)
    return w - c[3] * (mean / (np.sqrt(square) * c[4] + c[5])), mean, square


ELEMENTS: dict[str, Element] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _momentum,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adadelta": _adadelta,
    "adam": _adam,
    "adamw": _adam,
}
"""The step of each kind of optimizer."""
