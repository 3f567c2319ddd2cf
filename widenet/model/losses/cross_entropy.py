"""Cross-entropy under a sigmoid or a softmax."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import CrossEntropy


class _CrossEntropy(UnitLoss):
    """Computed from logits, so that no log meets a zero: -log a = softplus(-z), -log(1 - a) = softplus(z)."""

    slope_of_logit = True

    def __init__(self, spec: CrossEntropy) -> None:
        self.spec = spec

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z) - t * z, a - t

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z), a

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        pull_Z = share_Z if self.spec.targets == "share" else t_Z
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


def loss(spec: CrossEntropy, activation: Activation) -> _CrossEntropy:
    """The loss for a sigmoid or softmax output."""
    del activation
    return _CrossEntropy(spec)
