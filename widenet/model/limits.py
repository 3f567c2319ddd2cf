"""Limits on lengths: of the rows of a weight, and of the gradient of each example by a layer's sums."""

from typing import Any

import torch
from torch import Tensor

_SHORTEST = 1e-30
"""Shorter vectors count as of this length, so that no limit is divided by zero."""


def shortening(length: Tensor, limit: float) -> Tensor:
    """What brings vectors of these lengths within a limit: factors up to 1, of the lengths' shape and type."""
    return (limit / length.clamp_min(_SHORTEST)).clamp_max(1.0)


def shorten_rows(weight_RH: Tensor, limit: float) -> None:
    """Bring the rows of a weight within a length, in place."""
    weight_RH.mul_(shortening(weight_RH.norm(dim=1, keepdim=True), limit))


def shortened(z_EH: Tensor, limit: float | None) -> Tensor:
    """The same sums; on the way back the gradient of each example's own loss is kept within a length.

    The gradient that comes is that of the batch's loss, of which an example's own is the E-th part. A batch may have no example: of
    sequences, none with a next feature.
    """
    if limit is None or not z_EH.requires_grad or not len(z_EH):
        return z_EH
    found: Tensor = _Shortened.apply(z_EH, limit / len(z_EH))  # type: ignore[no-untyped-call]
    return found


class _Shortened(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, z: Tensor, limit: float) -> Tensor:
        context.limit = limit
        return z.view_as(z)

    @staticmethod
    def backward(context: Any, gradient_EH: Tensor) -> tuple[Tensor, None]:
        length_E = gradient_EH.double().square().sum(dim=1).sqrt()
        return gradient_EH * shortening(length_E, context.limit).float()[:, None], None
