"""RMSProp."""

import numpy as np
from torch import Tensor

from widenet.spec.optimizers import Rmsprop
from widenet.training.optimizers import multiply_rows


class _Rmsprop:
    moves_weights = False

    def __init__(self, spec: Rmsprop) -> None:
        self.spec = spec

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        del number
        decay = self.spec.decay
        square = state["square"].mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        weight.addcdiv_(gradient, square.sqrt().add_(self.spec.epsilon), value=-rate)

    def idle(self, weight: Tensor, state: dict[str, Tensor], since_U: np.ndarray, until: int, rates: np.ndarray) -> None:
        """The mean square fades; the weight stands still."""
        del weight, rates
        multiply_rows(state["square"], self.spec.decay ** (until - since_U).astype(np.float64))


def formula(spec: Rmsprop) -> _Rmsprop:
    """The formula of the spec."""
    return _Rmsprop(spec)
