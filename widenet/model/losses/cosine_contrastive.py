"""Positives pulled to one, negatives pushed below a margin."""

import torch
from torch import Tensor

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import CosineContrastive


class _CosineContrastive(UnitLoss):
    def __init__(self, spec: CosineContrastive) -> None:
        self.spec = spec

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        other_value, other_slope = self.others(z, a)
        is_target = t > 0
        return torch.where(is_target, 1 - a, other_value), torch.where(is_target, -1.0, other_slope)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        del z
        return (a - self.spec.margin).clamp_min(0), (a > self.spec.margin).to(a.dtype)

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and other units each count by their average."""
        num_others_E = (width - num_targets_E).clamp_min(1)
        return weight_E / num_targets_E.clamp_min(1), weight_E * self.spec.negative_weight / num_others_E


def loss(spec: CosineContrastive, activation: Activation) -> _CosineContrastive:
    """The loss for activations of single units."""
    del activation
    return _CosineContrastive(spec)
