"""Cross-entropy that ends at a margin."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import ScaledMarginalCrossEntropy


class MarginalCrossEntropy(UnitLoss):
    """Units that are right by their margin cost nothing and are left alone."""

    slope_of_logit = True

    def __init__(self, spec: ScaledMarginalCrossEntropy, scaled_by_data: bool = False) -> None:
        self.spec = spec
        self.scaled_by_data = scaled_by_data

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope by the logit of units with a target t; t > 0 makes a target."""
        strength = self.spec.one_scale * (t if self.scaled_by_data else torch.ones_like(t))
        strength = torch.where(a < self.spec.one_target, strength, 0.0)
        other_value, other_slope = self.others(z, a)
        is_target = t > 0
        value = torch.where(is_target, strength * softplus(-z), other_value)
        return value, torch.where(is_target, strength * (a - 1), other_slope)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope by the logit of other units."""
        strength = (a > self.spec.zero_target).to(z.dtype) * self.spec.zero_scale
        return strength * softplus(z), strength * a

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        """Value and pull of each target under a softmax."""
        strength_Z = self.spec.one_scale * (t_Z if self.scaled_by_data else share_Z)
        pull_Z = torch.where(log_p_Z.exp() >= self.spec.one_target, 0.0, strength_Z)
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


def loss(spec: ScaledMarginalCrossEntropy, activation: Activation) -> MarginalCrossEntropy:
    """The loss for a sigmoid or softmax output."""
    del activation
    return MarginalCrossEntropy(spec)
