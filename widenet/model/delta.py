"""Limits on the gradient of each example by a layer's sums."""

from typing import Any

import torch
from torch import Tensor


def shortened(z_EH: Tensor, limit: float | None) -> Tensor:
    """The same sums; on the way back the gradient of each example's own loss is kept within a length.

    The gradient that comes is that of the batch's loss, of which an example's own is the E-th part. A batch may have no example: of
    sequences, none with a next feature.
    """
    if limit is None or not z_EH.requires_grad or not len(z_EH):
        return z_EH
    found: Tensor = _Shortened.apply(z_EH, limit / len(z_EH))  # type: ignore[no-untyped-call]
    return found


def shortening(square_E: Tensor, limit: float, num_examples: int) -> Tensor:
    """What brings gradients of a batch's loss within an example's limit: factors float32 [E], from their squared lengths float64 [E]."""
    return (limit / max(num_examples, 1) / square_E.sqrt().clamp_min(1e-30)).clamp_max(1.0).float()


class _Shortened(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, z: Tensor, limit: float) -> Tensor:
        context.limit = limit
        return z.view_as(z)

    @staticmethod
    def backward(context: Any, gradient_EH: Tensor) -> tuple[Tensor, None]:
        square_E = gradient_EH.double().square().sum(dim=1)
        return gradient_EH * shortening(square_E, context.limit, 1)[:, None], None
