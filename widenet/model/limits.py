"""Limits on lengths: of the rows of a weight, and of each example's gradient to a layer's sums."""

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

    def shorten(gradient_NH: Tensor) -> Tensor:
        square_N = gradient_NH.double().square().sum(dim=1)
        if examples_N is not None:
            square_N = sum_by(square_N, examples_N, num_examples)[examples_N]
        return gradient_NH * shortening(square_N.sqrt(), limit / num_examples).float()[:, None]

    same_EH = z_EH.view_as(z_EH)
    same_EH.register_hook(shorten)  # type: ignore[no-untyped-call]
    return same_EH
