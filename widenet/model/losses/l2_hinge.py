"""Squared hinge around the target: no cost beyond it."""

import torch
from torch import Tensor

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import L2Hinge


class _L2Hinge(UnitLoss):
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        del z
        beyond = a - t.abs()
        distance = torch.where(t > 0, beyond.clamp_max(0), beyond.clamp_min(0))
        return 0.5 * distance * distance, distance

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        del z
        distance = a.clamp_min(0)
        return 0.5 * distance * distance, distance


def loss(spec: L2Hinge, activation: Activation) -> _L2Hinge:
    """The loss for activations of single units."""
    del spec, activation
    return _L2Hinge()
