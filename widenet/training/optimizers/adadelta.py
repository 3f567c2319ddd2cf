"""Adadelta."""

import numpy as np
from torch import Tensor

from widenet.kernels.powers import powers
from widenet.spec.optimizers import Adadelta
from widenet.training.optimizers import guards, held, multiply_rows


class _Adadelta:
    def __init__(self, spec: Adadelta) -> None:
        self.spec = spec
        self.epsilon, self.floor = guards(spec)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        del number
        return self.spec.decay, 1 - self.spec.decay, self.epsilon, rate, self.floor

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        del number
        decay, epsilon = self.spec.decay, self.epsilon
        square = state["square"].mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        step_root, root = (
            (held(mean, self.floor) + epsilon).sqrt_() for mean in (state["step_square"], square)
        )
        change = step_root.div_(root).mul_(gradient)
        state["step_square"].mul_(decay).addcmul_(change, change, value=1 - decay)
        weight.add_(change, alpha=-rate)

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        """Both mean squares fade; the weight stands still."""
        del weight, rates
        fade_U = self.fade((until - since_U).double())
        multiply_rows(state["square"], fade_U)
        multiply_rows(state["step_square"], fade_U)

    def fade(self, steps_U: Tensor) -> Tensor:
        """See `Idling.fade`."""
        return powers(self.spec.decay, steps_U)


def formula(spec: Adadelta) -> _Adadelta:
    """The formula of the spec."""
    return _Adadelta(spec)
