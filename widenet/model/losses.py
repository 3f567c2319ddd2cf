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
    """A loss that adds up over units, seen from a tile of logits.

    Attributes:
        spec: Its settings.
    """

    slope_of_logit = False
    """Whether slopes are derivatives by the logit; else by the activation."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    @abstractmethod
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and slope of units with a target t."""

    @abstractmethod
    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and slope of units that are no sparse target."""

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

    slope_of_logit = True
    spec: CrossEntropy

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z) - t * z, a - t

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return softplus(z), a

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        pull_Z = share_Z if self.spec.targets == "share" else t_Z
        return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


class _MarginalCrossEntropy(Loss):
    """Units that are right by their margin cost nothing and are left alone."""

    slope_of_logit = True
    spec: ScaledMarginalCrossEntropy

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        strength = self.spec.one_scale * self._strength(t, torch.ones_like(t))
        strength = torch.where(a < self.spec.one_target, strength, 0.0)
        other_value, other_slope = self.others(z, a)
        is_target = t > 0
        value = torch.where(is_target, strength * softplus(-z), other_value)
        return value, torch.where(is_target, strength * (a - 1), other_slope)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        strength = (a > self.spec.zero_target).to(z.dtype) * self.spec.zero_scale
        return strength * softplus(z), strength * a

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
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return (a - t).abs(), torch.sign(a - t)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return a.abs(), torch.sign(a)


class _L2(Loss):
    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        difference = a - t
        return 0.5 * difference * difference, difference

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return 0.5 * a * a, a.clone()


class _Hinge(Loss):
    """A margin of one on the right side."""

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        value = (1 - t * a).clamp_min(0)
        return value, torch.where(value > 0, -t, 0.0)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return self.cells(z, a, torch.full_like(a, -1.0))


class _L2Hinge(Loss):
    """Squared hinge around the target: no cost beyond it."""

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        beyond = a - t.abs()
        distance = torch.where(t > 0, beyond.clamp_max(0), beyond.clamp_min(0))
        return 0.5 * distance * distance, distance

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        distance = a.clamp_min(0)
        return 0.5 * distance * distance, distance


class _CosineContrastive(Loss):
    """Positives pulled to one, negatives pushed below a margin."""

    spec: CosineContrastive

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        other_value, other_slope = self.others(z, a)
        is_target = t > 0
        return torch.where(is_target, 1 - a, other_value), torch.where(is_target, -1.0, other_slope)

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return (a - self.spec.margin).clamp_min(0), (a > self.spec.margin).to(a.dtype)

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
