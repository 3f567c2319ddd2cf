"""Stochastic gradient descent."""

from torch import Tensor

from widenet.spec.optimizers import Sgd


class _Sgd:
    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        del number
        return (rate,)

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        del state, number
        weight.add_(gradient, alpha=-rate)


def formula(spec: Sgd) -> _Sgd:
    """The formula of the spec."""
    del spec
    return _Sgd()
