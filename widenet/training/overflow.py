"""Finds the layer in which a step overflowed first, and names a remedy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.errors import NumericsError
from widenet.model.preparation import Values
from widenet.sparse import SparseBatch

REMEDY = "Lower the learning rate, or set gradient_norm_limit."
_LARGE = 1e3
"""Values of a batch above this are named as a possible cause."""


@dataclass(frozen=True)
class Launched:
    """The results of a step's forward pass; the device may still be working on the step.

    Attributes:
        loss: Loss of the batch, float64 [].
        values: Values of the inputs and hidden layers, [E, units], in order of computation.
        losses: Loss of each output, float64 [].
    """

    loss: Tensor
    values: Mapping[str, Tensor]
    losses: Mapping[str, Tensor]

    def check(self, loss: float) -> None:
        """Raise NumericsError, naming the layer that overflowed first, if the loss is not finite."""
        if math.isfinite(loss):
            return
        layers = [
            name
            for name, values in {**self.values, **self.losses}.items()
            if not bool(torch.isfinite(values).all())
        ]
        where = f'layer "{layers[0]}"' if layers else "a penalty on sparseness"
        raise NumericsError(
            f"the loss must be a finite number; got {loss}. The first number that is not finite arose in"
            f" {where}."
        )


def remedy(fields: Mapping[str, Values]) -> str:
    """Return what to do about an overflow in a batch with these fields."""
    largest = {
        name: _largest(field.values if isinstance(field, SparseBatch) else field)
        for name, field in fields.items()
    }
    name = max(largest, key=lambda name: largest[name])
    if largest[name] <= _LARGE:
        return REMEDY
    scale = f'scale field "{name}", whose values reach {largest[name]:.3g} in this batch'
    return f"Lower the learning rate, set gradient_norm_limit, or {scale}."


def _largest(values: Tensor | None) -> float:
    return float(values.abs().max()) if values is not None and values.numel() else 0.0
