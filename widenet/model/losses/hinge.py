"""Hinge: a margin of one on the right side."""

import torch
from torch import Tensor

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import Hinge


class _Hinge(UnitLoss):
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        del z
        value = (1 - t * a).clamp_min(0)
        return value, torch.where(value > 0, -t, 0.0)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return self.cells(z, a, torch.full_like(a, -1.0))


def loss(spec: Hinge, activation: Activation) -> _Hinge:
    """The loss for activations of single units."""
    del spec, activation
    return _Hinge()
