"""Batch normalization: by the statistics of a batch in training, by running ones elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.model.trunk_weight import TrunkWeight
from widenet.spec.parts import BatchNormalization


@dataclass(frozen=True)
class Statistics:
    """Mean and variance of every channel, float32 [C] each; of a batch, the variance is over its number of
    values less one.
    """

    mean_C: Tensor
    variance_C: Tensor

    def follow(self, batch: "Statistics", momentum: float) -> None:
        """Move, in place, by a share of the way to those of a batch."""
        for own_C, found_C in ((self.mean_C, batch.mean_C), (self.variance_C, batch.variance_C)):
            own_C.mul_(1 - momentum).add_(found_C, alpha=momentum)


def running(trunk: Mapping[str, TrunkWeight], layer: str) -> Statistics:
    """Return the running statistics of a layer."""
    return Statistics(*(trunk[f"{layer} normalization {part}"].tensor for part in ("mean", "variance")))


def by_batch(
    values_ECP: Tensor, scale_C: Tensor, shift_C: Tensor, spec: BatchNormalization
) -> tuple[Tensor, Statistics | None]:
    """Values normalized over examples and positions, differentiable; and their statistics, of a single
    value none.
    """
    found = Statistics(scale_C.new_zeros(len(scale_C)), scale_C.new_zeros(len(scale_C)))
    num = values_ECP.shape[0] * values_ECP.shape[2]
    result = torch.batch_norm(
        values_ECP, scale_C, shift_C, found.mean_C, found.variance_C, True, 1.0, spec.epsilon, False
    )
    return result, found if num > 1 else None


def by_statistics(
    values_ECP: Tensor, scale_C: Tensor, shift_C: Tensor, running: Statistics, spec: BatchNormalization
) -> Tensor:
    """Values normalized by known statistics."""
    factor_C = scale_C * torch.rsqrt(running.variance_C + spec.epsilon)
    return values_ECP * factor_C[:, None] + (shift_C - running.mean_C * factor_C)[:, None]
