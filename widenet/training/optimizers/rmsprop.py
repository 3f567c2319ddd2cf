"""RMSProp."""

import numpy as np
from torch import Tensor

from widenet.kernels.powers import powers
from widenet.spec.optimizers import Rmsprop
from widenet.training.optimizers import guards, held, multiply_rows


class _Rmsprop:
    def __init__(self, spec: Rmsprop) -> None:
        self.spec = spec
        self.epsilon, self.floor = guards(spec)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        del number
        return self.spec.decay, 1 - self.spec.decay, self.epsilon, rate, self.floor

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        del number
        decay = self.spec.decay
        square = state["square"].mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        weight.addcdiv_(gradient, held(square, self.floor).sqrt().add_(self.epsilon), value=-rate)

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        """The mean square fades; the weight stands still."""
        del weight, rates
        multiply_rows(state["square"], self.fade((until - since_U).double()))

    def fade(self, steps_U: Tensor) -> Tensor:
        """See `Idling.fade`."""
        return powers(self.spec.decay, steps_U)


def formula(spec: Rmsprop) -> _Rmsprop:
    """The formula of the spec."""
    return _Rmsprop(spec)
