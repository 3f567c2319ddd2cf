"""Numbers that overflow in a step: the layer in which they did so first, and what a person can do."""

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
"""Values of a batch above it are named as a possible cause."""


@dataclass(frozen=True)
class Launched:
    """A step on which a device may still be at work.

    loss: float64 []. values: of the inputs and hidden layers [E, units], in the order in which they were
    computed. losses: the outputs' own, float64 []. All are of the forward pass, so that it does not matter
    what the step then did to the weights.
    """

    loss: Tensor
    values: Mapping[str, Tensor]
    losses: Mapping[str, Tensor]

    def check(self, loss: float) -> None:
        """Raise NumericsError if the loss, now known to the host, is not finite; the message names the
        layer that overflowed first.
        """
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
    """What to do about an overflow in a batch of these fields."""
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
