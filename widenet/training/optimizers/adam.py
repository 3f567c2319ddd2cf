"""Adam. Lazy on rows: a row without a gradient keeps its weight and its moments until it has one."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.spec.optimizers import Adam

_LARGEST = torch.finfo(torch.float32).max


class AdamFormula:
    """Adam's step; the correction for the moments' start counts the training's steps."""

    def __init__(self, spec: Adam) -> None:
        self.spec = spec

    @staticmethod
    def element(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
        """See `Formula.element`."""
        mean = s + c[0] * (g - s)
        square = c[1] * t + c[2] * (g * g)
        return w - c[3] * (mean / (np.sqrt(square) * c[4] + c[5])), mean, square

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """See `Formula.constants`."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        step = min(rate / (1 - beta1**number), _LARGEST)
        return 1 - beta1, beta2, 1 - beta2, step, 1 / math.sqrt(1 - beta2**number), self.spec.epsilon

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        """One step."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        mean = state["mean"].lerp_(gradient, 1 - beta1)
        square = state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        divisor = square.sqrt().mul_(1 / math.sqrt(1 - beta2**number)).add_(self.spec.epsilon)
        weight.addcdiv_(mean, divisor, value=-min(rate / (1 - beta1**number), _LARGEST))


def formula(spec: Adam) -> AdamFormula:
    """The formula of the spec."""
    return AdamFormula(spec)
