"""Adagrad."""

from typing import Any

import numpy as np
from torch import Tensor

from widenet.spec.optimizers import Adagrad


class _Adagrad:
    def __init__(self, spec: Adagrad) -> None:
        self.spec = spec

    @staticmethod
    def element(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
        total = s + g * g
        return w - c[0] * (g / (np.sqrt(total) + c[1])), total, t

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        del number
        return rate, self.spec.epsilon

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        del number
        total = state["square_sum"].addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, total.sqrt().add_(self.spec.epsilon), value=-rate)


def formula(spec: Adagrad) -> _Adagrad:
    """The formula of the spec."""
    return _Adagrad(spec)
