"""Adam. Lazy on rows: a row without a gradient keeps its weight and its moments until it has one."""

import math

import torch
from torch import Tensor

from widenet.spec.optimizers import Adam, OfMoments

_LARGEST = torch.finfo(torch.float32).max


class AdamFormula:
    """Adam's step; step_offset is added to its number in the correction for the moments' start."""

    def __init__(self, spec: OfMoments, step_offset: int = 0) -> None:
        self.spec, self.step_offset = spec, step_offset

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """See `Formula.constants`."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        return 1 - beta1, beta2, 1 - beta2, *self._corrected(rate, number), self.spec.epsilon

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        """One step."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        mean = state["mean"].lerp_(gradient, 1 - beta1)
        square = state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        length, factor = self._corrected(rate, number)
        weight.addcdiv_(mean, square.sqrt().mul_(factor).add_(self.spec.epsilon), value=-length)

    def _corrected(self, rate: float, number: int) -> tuple[float, float]:
        """Return the rate and the factor of the square root after the bias correction of the moments."""
        times = number + self.step_offset
        return min(rate / (1 - self.spec.beta1**times), _LARGEST), 1 / math.sqrt(1 - self.spec.beta2**times)


def formula(spec: Adam) -> AdamFormula:
    """The formula of the spec."""
    return AdamFormula(spec, spec.step_offset)
