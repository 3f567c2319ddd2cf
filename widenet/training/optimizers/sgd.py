"""Stochastic gradient descent."""

from typing import Any

from torch import Tensor

from widenet.spec.optimizers import Sgd


class _Sgd:
    @staticmethod
    def element(w: Any, g: Any, s: Any, t: Any, c: Any) -> tuple[Any, Any, Any]:
        return w - c[0] * g, s, t

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
