"""Adagrad."""

from torch import Tensor

from widenet.spec.optimizers import Adagrad


class _Adagrad:
    def __init__(self, spec: Adagrad) -> None:
        self.spec = spec

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        del number
        total = state["square_sum"].addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, total.sqrt().add_(self.spec.epsilon), value=-rate)


def formula(spec: Adagrad) -> _Adagrad:
    """The formula of the spec."""
    return _Adagrad(spec)
