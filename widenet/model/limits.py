"""Limits on lengths: of the rows of a weight, and of each example's gradient to a layer's sums."""

from typing import Any

import torch
from torch import Tensor

from widenet.kernels.fixed_point import sum_by
from widenet.model.positions import Positions

_SHORTEST = 1e-30
"""Shorter vectors count as having this length, to avoid a division by zero."""


def shortening(length: Tensor, limit: float) -> Tensor:
    """Return the factors, at most 1, that shorten vectors of these lengths to a limit."""
    return (limit / length.clamp_min(_SHORTEST)).clamp_max(1.0)


def shorten_rows(weight_RH: Tensor, limit: float) -> None:
    """Shorten the rows of a weight that exceed a limit, in place."""
    weight_RH.mul_(shortening(weight_RH.norm(dim=1, keepdim=True), limit))


def shortened(z_EH: Tensor, limit: float | None, positions: Positions | None = None) -> Tensor:
    """Return the same sums; the backward pass shortens the gradient of each example's own loss to a limit.

    The gradient of the batch's loss is 1 / E of the examples' own gradients. E can be 0, for instance if no
    sequence has a next feature.

    Args:
        z_EH: Sums of a layer; [N, H] along a sequence.
        limit: The limit; None: no limit.
        positions: Positions of the sums along a sequence; those of one example count together.
    """
    if limit is None or not z_EH.requires_grad or not len(z_EH):
        return z_EH
    num_examples = len(z_EH) if positions is None else len(positions.ends_E)
    examples_N = None if positions is None else positions.examples_N
    result: Tensor = _Shortened.apply(z_EH, limit / num_examples, num_examples, examples_N)  # type: ignore[no-untyped-call]
    return result


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
