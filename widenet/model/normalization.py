"""Batch normalization: by the batch's statistics in training, else by running statistics."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.model.weight import TrunkWeight
from widenet.spec.parts import BatchNormalization


@dataclass(frozen=True)
class Statistics:
    """Mean and variance of every channel, float32 [C]; a batch's variance divides by its size - 1."""

    mean_C: Tensor
    variance_C: Tensor

    def follow(self, batch: "Statistics", momentum: float) -> None:
        """Move these running statistics towards those of a batch, in place, by the share `momentum`."""
        for own_C, batch_C in ((self.mean_C, batch.mean_C), (self.variance_C, batch.variance_C)):
            own_C.mul_(1 - momentum).add_(batch_C, alpha=momentum)


def running(trunk: Mapping[str, TrunkWeight], layer: str) -> Statistics:
    """Return the running statistics of a layer."""
    return Statistics(*(trunk[f"{layer} normalization {part}"].tensor for part in ("mean", "variance")))


def by_batch(
    values_ECP: Tensor, scale_C: Tensor, shift_C: Tensor, spec: BatchNormalization
) -> tuple[Tensor, Statistics | None]:
    """Normalize values over examples and positions; differentiable.

    Returns:
        The normalized values, and the batch's statistics; None if each channel has a single value.
    """
    batch = Statistics(scale_C.new_zeros(len(scale_C)), scale_C.new_zeros(len(scale_C)))
    num = values_ECP.shape[0] * values_ECP.shape[2]
    result = torch.batch_norm(
        values_ECP, scale_C, shift_C, batch.mean_C, batch.variance_C, True, 1.0, spec.epsilon, False
    )
    return result, batch if num > 1 else None


def by_statistics(
    values_ECP: Tensor, scale_C: Tensor, shift_C: Tensor, running: Statistics, spec: BatchNormalization
) -> Tensor:
    """Normalize values by running statistics."""
    factor_C = scale_C * torch.rsqrt(running.variance_C + spec.epsilon)
    return values_ECP * factor_C[:, None] + (shift_C - running.mean_C * factor_C)[:, None]
