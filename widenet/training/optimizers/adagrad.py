"""Adagrad."""

from torch import Tensor

from widenet.spec.optimizers import Adagrad
from widenet.training.optimizers import guards, held


class _Adagrad:
    def __init__(self, spec: Adagrad) -> None:
        self.spec = spec
        self.epsilon, self.floor = guards(spec)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        del number
        return rate, self.epsilon, self.floor

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        del number
        total = state["square_sum"].addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, held(total, self.floor).sqrt().add_(self.epsilon), value=-rate)


def formula(spec: Adagrad) -> _Adagrad:
    """The formula of the spec."""
    return _Adagrad(spec)
