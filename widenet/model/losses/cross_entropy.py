"""Cross-entropy under a sigmoid or a softmax."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.model.losses.shape import UnitLoss
from widenet.spec.activations import Activation
from widenet.spec.losses import CrossEntropy

_FOLDS = 3
"""Each halves the logarithms; after three, a factor of at least 2^-8 still lies far enough from zero."""


class _CrossEntropy(UnitLoss):
    """Computed from logits, so that no log meets a zero: -log a = softplus(-z), -log(1 - a) = softplus(z)."""

    slope_of_logit = True

    def __init__(self, spec: CrossEntropy) -> None:
        self.spec = spec

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z) - t * z, a - t

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z), a

    def others_by_example(self, z_ET: Tensor, a_ET: Tensor) -> tuple[Tensor, Tensor]:
        """softplus(z) = max(z, 0) - log(1 - m) with m = min(a, 1 - a), which spares a tile most of its exponentials and logarithms."""
        return torch.relu(z_ET).sum(dim=1) - _sum_of_logs(torch.minimum(a_ET, 1 - a_ET)), a_ET

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        pull_Z = share_Z if self.spec.targets == "share" else t_Z
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


def _sum_of_logs(m_ET: Tensor) -> Tensor:
    """The sum of log(1 - m) over the units, float32 [E], for m in [0, 1/2]; of small m nothing is rounded away.

    Two factors make one: (1 - x) (1 - y) = 1 - (x + y - x y).
    """
    for _ in range(_FOLDS):
        half, odd = divmod(m_ET.shape[1], 2)
        if odd:
            break
        left_ET, right_ET = m_ET[:, :half], m_ET[:, half:]
        m_ET = (left_ET + right_ET).addcmul_(left_ET, right_ET, value=-1)
    return torch.log1p(m_ET.neg_()).sum(dim=1)


def loss(spec: CrossEntropy, activation: Activation) -> _CrossEntropy:
    """The loss for a sigmoid or softmax output."""
    del activation
    return _CrossEntropy(spec)
