"""Adam. Lazy on rows: a row without a gradient keeps its weight and its moments until it has one."""

import math

import torch
from torch import Tensor

from widenet.spec.optimizers import Adam

_LARGEST = torch.finfo(torch.float32).max


class AdamFormula:
    """Adam's step; the correction for the moments' start counts the training's steps."""

    def __init__(self, spec: Adam) -> None:
        self.spec = spec

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
