"""Absolute difference."""

import torch
from torch import Tensor

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import L1


class _L1(UnitLoss):
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        del z
        return (a - t).abs(), torch.sign(a - t)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        del z
        return a.abs(), torch.sign(a)


def loss(spec: L1, activation: Activation) -> _L1:
    """The loss for any activation."""
    del spec, activation
    return _L1()
