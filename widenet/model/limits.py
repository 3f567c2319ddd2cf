"""Limits on lengths: of the rows of a weight, and of the gradient of each example by a layer's sums."""

from typing import Any

import torch
from torch import Tensor

from widenet.kernels import sum_by
from widenet.model.positions import Positions

_SHORTEST = 1e-30
"""Shorter vectors count as of this length, so that no limit is divided by zero."""


def shortening(length: Tensor, limit: float) -> Tensor:
    """What brings vectors of these lengths within a limit: factors up to 1, of the lengths' shape and
    type.
    """
    return (limit / length.clamp_min(_SHORTEST)).clamp_max(1.0)


def shorten_rows(weight_RH: Tensor, limit: float) -> None:
    """Bring the rows of a weight within a length, in place."""
    weight_RH.mul_(shortening(weight_RH.norm(dim=1, keepdim=True), limit))


def shortened(z_EH: Tensor, limit: float | None, positions: Positions | None = None) -> Tensor:
    """The same sums; on the way back the gradient of each example's own loss is kept within a length.

    The gradient that comes is that of the batch's loss, of which an example's own is the E-th part. A batch
    may have no example: of sequences, none with a next feature.
    positions: of sums [N, H] along a sequence; those of one example count together.
    """
    if limit is None or not z_EH.requires_grad or not len(z_EH):
        return z_EH
    num_examples = len(z_EH) if positions is None else len(positions.ends_E)
    examples_N = None if positions is None else positions.examples_N
    found: Tensor = _Shortened.apply(z_EH, limit / num_examples, num_examples, examples_N)  # type: ignore[no-untyped-call]
    return found


class _Shortened(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, z: Tensor, limit: float, num_examples: int, examples_N: Tensor | None
    ) -> Tensor:
        context.limit, context.num_examples, context.examples_N = limit, num_examples, examples_N
        return z.view_as(z)

    @staticmethod
    def backward(context: Any, gradient_NH: Tensor) -> tuple[Tensor, None, None, None]:
        square_N, examples_N = gradient_NH.double().square().sum(dim=1), context.examples_N
        if examples_N is not None:
            square_N = sum_by(square_N, examples_N, context.num_examples)[examples_N]
        return gradient_NH * shortening(square_N.sqrt(), context.limit).float()[:, None], None, None, None
