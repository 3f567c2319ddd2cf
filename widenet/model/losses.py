"""Losses of outputs, unit by unit, by the kind in the network document; divisors of activations over a layer.

z: logits; a: activations, shaped like z; t: targets. Everything is elementwise and differentiable.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from widenet.kernels.fixed_point import exact_sum
from widenet.model.operands import filled
from widenet.parallel.exchange import Exchange
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
    """Return the values of units that are no sparse target: those of a target of 0, and of -1 for a hinge."""
    if isinstance(loss, ScaledMarginalCrossEntropy):
        return (a > loss.zero_target).to(z.dtype) * loss.zero_scale * softplus(z)
    return of_targets(loss, z, a, z.new_tensor(-1.0 if loss.kind == "hinge" else 0.0))


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


@dataclass
class RowSum:
    """A shard's part of the divisors of E examples.

    Attributes:
        kind: Kind of the activation.
        peak_E: Largest logit, float32; only for a softmax.
        sum_E: The sum, float64; for a softmax of exp(z - peak).
    """

    kind: str
    peak_E: Tensor
    sum_E: Tensor

    @classmethod
    def empty(cls, kind: str, num_examples: int, device: torch.device) -> "RowSum":
        """Return the sum over no units."""
        peak_E = torch.full((num_examples,), -torch.inf, device=device)
        return cls(kind, peak_E, torch.zeros_like(peak_E, dtype=torch.float64))

    def add(self, logits_ET: Tensor, columns: int = 1) -> None:
        """Add a tile's logits, with columns after them that add nothing, up to a multiple of `columns`."""
        if self.kind == "softmax":
            peak_E, missing = torch.maximum(self.peak_E, logits_ET.amax(dim=1)), -logits_ET.shape[1] % columns
            share_EC = pad(logits_ET - peak_E[:, None], (0, missing), value=-torch.inf).exp_()
            self.sum_E *= torch.exp((self.peak_E - peak_E).double())
            self.sum_E += share_EC.sum(dim=1)
            self.peak_E = peak_E
        else:
            part_EC = filled(logits_ET, columns=columns)
            self.sum_E += (torch.relu(part_EC) if self.kind == "relu_max" else part_EC.abs()).sum(dim=1)


def over_shards(sums: Sequence[RowSum], exchange: Exchange, where: str) -> Tensor:
    """Return the divisors, or a softmax's logarithms of them, from the sums of this process's shards: [E]."""
    if sums[0].kind != "softmax":
        return exact_sum(exchange.gather([own.sum_E for own in sums], where)).float()
    return softmax_divisors([torch.stack((own.peak_E.double(), own.sum_E)) for own in sums], exchange, where)


def softmax_divisors(sums: Sequence[Tensor], exchange: Exchange, where: str) -> Tensor:
    """Return the logarithms [E] of the divisors from the peaks and sums float64 [2, E] of the shards here."""
    both_S2E = torch.stack(exchange.gather(sums, where))
    peak_SE, total_SE = both_S2E[:, 0].float(), both_S2E[:, 1]
    peak_E = peak_SE.amax(dim=0)
    scaled_SE = (peak_SE - peak_E).double().exp_().mul_(total_SE)
    return exact_sum(scaled_SE).log_().add_(peak_E).float()


def divided(kind: str, logits: Tensor, total_E1: Tensor) -> Tensor:
    """Return the activations of logits [E, N] from `over_shards`; zero if the divisor is zero."""
    if kind == "softmax":
        return torch.exp(logits - total_E1)
    parts = torch.relu(logits) if kind == "relu_max" else logits
    return torch.where(total_E1 == 0, 0.0, parts / total_E1)
