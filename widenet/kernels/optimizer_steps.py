"""Optimizer steps on a CPU by the native library: one pass over a weight, its gradient and its state."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.native import Packed, call, check_dtype, packed

_KINDS = {
    "sgd": 0,
    "momentum": 1,
    "nesterov": 1,
    "adagrad": 2,
    "rmsprop": 3,
    "adadelta": 4,
    "adam": 5,
    "adamw": 5,
}
"""The library's number of each kind of optimizer."""
_NUM_CONSTANTS = 6
"""The most constants of an optimizer, which the library reads of each."""


@dataclass(frozen=True)
class Penalties:
    """Changes before an optimizer's own step: g = scale * g + l2 * w + l1 * sign(w), then w = keep * w."""

    scale: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    keep: float = 1.0


@dataclass(frozen=True)
class TileStep:
    """An optimizer's step, as the library makes it.

    Attributes:
        kind: Number of the kind of optimizer.
        penalties: Numbers of `Penalties`, float32.
        constants: `constants` of the optimizer's formula, float32 [6].
    """

    kind: int
    penalties: Tensor
    constants: Tensor

    @staticmethod
    def of(kind: str, penalties: Penalties, constants: Sequence[float]) -> "TileStep":
        """Return the step of a kind of optimizer."""
        assert len(constants) <= _NUM_CONSTANTS
        filled = [*constants, *[0.0] * (_NUM_CONSTANTS - len(constants))]
        numbers = penalties.scale, penalties.l2, penalties.l1, penalties.keep
        return TileStep(_KINDS[kind], _float32(*numbers), _float32(*filled))

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """Make the step of a contiguous weight, in place; gradient and states have its shape."""
        first, second = _two(weight, states)
        check_dtype(torch.float32, gradient)
        call("step_tile", self._packed(), weight.numel(), weight, gradient.contiguous(), first, second)

    def rows(self, weight_RH: Tensor, touched: RowGradient, states: Sequence[Tensor], fade_U: Tensor) -> None:
        """Make the step of the touched rows of a weight, in place.

        Args:
            weight_RH: The weight.
            touched: The rows and their gradient.
            states: The optimizer's states, float32 [R, H].
            fade_U: Factors on the states before the step, float32.
        """
        first, second = _two(weight_RH, states)
        check_dtype(torch.float32, touched.gradient_EH, touched.values_Z, fade_U)
        rows_U, indptr, examples_Z = (
            tensor.long().contiguous() for tensor in (touched.features_U, touched.indptr, touched.examples_Z)
        )
        gradient_EH = touched.gradient_EH.contiguous()
        weights = weight_RH.shape[1], weight_RH, first, second, gradient_EH
        entries = rows_U, len(rows_U), indptr, examples_Z, touched.values_Z, fade_U
        call("step_rows", self._packed(), *weights, *entries)

    def _packed(self) -> Packed:
        return packed(self.kind, self.penalties, self.constants)


@dataclass(frozen=True)
class Stepped:
    """What a step moves: a shard's weights or its biases.

    Attributes:
        numbers: The weights, float32 [R, H], or the biases, float32 [R].
        states: Their states, at most two, of the same shape.
        step: The step.
    """

    numbers: Tensor
    states: Sequence[Tensor]
    step: TileStep

    def packed(self) -> Packed:
        """Return the library's structure."""
        first, second = _two(self.numbers, self.states)
        return packed(self.numbers, first, second, self.step.kind, self.step.penalties, self.step.constants)


def _two(numbers: Tensor, states: Sequence[Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """Return two states, or None in place of missing ones, after a check of their types."""
    check_dtype(torch.float32, numbers, *states)
    assert len(states) <= 2
    first = states[0] if states else None
    return first, states[1] if len(states) > 1 else None


@lru_cache(maxsize=64)
def _float32(*numbers: float) -> Tensor:
    """Return numbers as a float32 tensor; cached, since all tiles of a step need the same."""
    return torch.tensor(numbers, dtype=torch.float32)
