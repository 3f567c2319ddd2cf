"""Losses of outputs, by the kind in the network document.

z: logits; a: activations, shaped like z; t: targets. Everything elementwise.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.spec.losses import CosineContrastive, CrossEntropy, ScaledMarginalCrossEntropy
from widenet.spec.losses import Loss as LossSpec


class Loss(ABC):
    """A loss that adds up over units, seen from a tile of logits; its values are differentiable.

    Attributes:
        spec: Its settings.
    """

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    @abstractmethod
    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        """Return the values of units with a target t."""

    @abstractmethod
    def others(self, z: Tensor, a: Tensor) -> Tensor:
        """Return the values of units that are no sparse target."""

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss weights of targets and of other units, float32 [E] each, from those of the examples."""
        return weight_E, weight_E

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return, under a softmax, the value of each target, and its pull on its logit.

        The gradient to the logits is p * (sum of the example's pulls) - pull. Only the cross-entropies have
        such a closed form.

        Args:
            log_p_Z: Logarithm of each target's probability.
            t_Z: Its value.
            share_Z: Its share of the sum of the example's values.
        """
        raise AssertionError("this loss has no closed form under a softmax")


class _CrossEntropy(Loss):
    """Computed from logits, so that no log meets a zero: -log a = softplus(-z), -log(1 - a) = softplus(z)."""

    spec: CrossEntropy

    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        return softplus(z) - t * z

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return softplus(z)

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        pull_Z = share_Z if self.spec.targets == "share" else t_Z
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


class _MarginalCrossEntropy(Loss):
    """Units that are right by their margin cost nothing and are left alone."""

    spec: ScaledMarginalCrossEntropy

    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        strength = self.spec.one_scale * self._strength(t, torch.ones_like(t))
        strength = torch.where(a < self.spec.one_target, strength, 0.0)
        return torch.where(t > 0, strength * softplus(-z), self.others(z, a))

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        strength = (a > self.spec.zero_target).to(z.dtype) * self.spec.zero_scale
        return strength * softplus(z)

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        strength_Z = self.spec.one_scale * self._strength(t_Z, share_Z)
        pull_Z = torch.where(log_p_Z.exp() >= self.spec.one_target, 0.0, strength_Z)
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z

    def _strength(self, value: Tensor, share: Tensor) -> Tensor:
        """Return what each target counts."""
        return share


class _DataMarginalCrossEntropy(_MarginalCrossEntropy):
    """Targets count by their values."""

    def _strength(self, value: Tensor, share: Tensor) -> Tensor:
        return value


class _L1(Loss):
    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        return (a - t).abs()

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return a.abs()


class _L2(Loss):
    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        return 0.5 * (a - t).square()

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return 0.5 * a.square()


class _Hinge(Loss):
    """A margin of one on the right side."""

    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        return torch.relu(1 - t * a)

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return torch.relu(1 + a)


class _L2Hinge(Loss):
    """Squared hinge around the target: no cost beyond it."""

    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        beyond = a - t.abs()
        return 0.5 * torch.where(t > 0, beyond.clamp_max(0), beyond.clamp_min(0)).square()

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return 0.5 * torch.relu(a).square()


class _CosineContrastive(Loss):
    """Positives pulled to one, negatives pushed below a margin."""

    spec: CosineContrastive

    def value(self, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
        return torch.where(t > 0, 1 - a, self.others(z, a))

    def others(self, z: Tensor, a: Tensor) -> Tensor:
        return torch.relu(a - self.spec.margin)

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and other units each count by their average."""
        num_others_E = (width - num_targets_E).clamp_min(1)
        return weight_E / num_targets_E.clamp_min(1), weight_E * self.spec.negative_weight / num_others_E


_LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": _CrossEntropy,
    "scaled_marginal_cross_entropy": _MarginalCrossEntropy,
    "data_scaled_marginal_cross_entropy": _DataMarginalCrossEntropy,
    "l1": _L1,
    "l2": _L2,
    "hinge": _Hinge,
    "l2_hinge": _L2Hinge,
    "cosine_contrastive": _CosineContrastive,
}


def loss_of(spec: LossSpec) -> Loss:
    """Return the loss of a spec."""
    return _LOSSES[spec.kind](spec)
