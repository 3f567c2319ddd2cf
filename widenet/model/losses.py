"""Losses of outputs, unit by unit, by the kind in the network document.

z: logits; a: activations, shaped like z; t: targets. Everything is elementwise and differentiable.
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.spec.losses import CrossEntropy, Loss, PlainLoss, ScaledMarginalCrossEntropy


def of_targets(loss: Loss, z: Tensor, a: Tensor, t: Tensor) -> Tensor:
    """Return the values of units with a target t."""
    match loss:
        # Cross-entropies are of logits, so that no log meets a zero: -log a = softplus(-z), and
        # -log(1 - a) = softplus(z).
        case CrossEntropy():
            return softplus(z) - t * z
        case ScaledMarginalCrossEntropy():
            strength = loss.one_scale * _strength(loss, t, torch.ones_like(t))
            strength = torch.where(a < loss.one_target, strength, 0.0)
            return torch.where(t > 0, strength * softplus(-z), of_others(loss, z, a))
        case PlainLoss(kind="l1"):
            return (a - t).abs()
        case PlainLoss(kind="l2"):
            return 0.5 * (a - t).square()
        case PlainLoss(kind="hinge"):
            return torch.relu(1 - t * a)
        case _:  # l2_hinge
            beyond = a - t.abs()
            return 0.5 * torch.where(t > 0, beyond.clamp_max(0), beyond.clamp_min(0)).square()


def of_others(loss: Loss, z: Tensor, a: Tensor) -> Tensor:
    """Return the values of units that are no sparse target."""
    match loss:
        case CrossEntropy():
            return softplus(z)
        case ScaledMarginalCrossEntropy():
            return (a > loss.zero_target).to(z.dtype) * loss.zero_scale * softplus(z)
        case PlainLoss(kind="l1"):
            return a.abs()
        case PlainLoss(kind="l2"):
            return 0.5 * a.square()
        case PlainLoss(kind="hinge"):
            return torch.relu(1 + a)
        case _:  # l2_hinge
            return 0.5 * torch.relu(a).square()


def pulls(loss: Loss, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for a cross-entropy under a softmax, the value of each target, and its pull on its logit.

    The gradient to the logits is p * (sum of the example's pulls) - pull.

    Args:
        loss: The loss.
        log_p_Z: Logarithm of each target's probability.
        t_Z: Its value.
        share_Z: Its share of the sum of the example's values.
    """
    if isinstance(loss, ScaledMarginalCrossEntropy):
        strength_Z = loss.one_scale * _strength(loss, t_Z, share_Z)
        pull_Z = torch.where(log_p_Z.exp() >= loss.one_target, 0.0, strength_Z)
    else:
        pull_Z = t_Z if isinstance(loss, CrossEntropy) and loss.targets == "sum" else share_Z
    return torch.where(pull_Z == 0, 0.0, -pull_Z * log_p_Z), pull_Z


def _strength(loss: ScaledMarginalCrossEntropy, t: Tensor, share: Tensor) -> Tensor:
    return t if loss.kind == "data_scaled_marginal_cross_entropy" else share
