"""The loss of each shard, from those of blocks of units."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 1024
"""Losses that a program adds at once."""


@triton.jit
def _added(total, losses, num_losses, NUMBERS: tl.constexpr):
    """Return the totals with every `NUMBERS`-th loss of a shard added to one of them."""
    own = losses + tl.program_id(0).to(tl.int64) * num_losses
    for start in range(0, num_losses, NUMBERS):
        place = start + tl.arange(0, NUMBERS)
        total += tl.load(own + place, mask=place < num_losses, other=0.0)
    return total


@triton.jit
def _shard_losses_kernel(others, targets, losses, num_others, num_targets, NUMBERS: tl.constexpr):
    total = _added(tl.zeros((NUMBERS,), tl.float64), targets, num_targets, NUMBERS)
    if others is not None:
        total = _added(total, others, num_others, NUMBERS)
    tl.store(losses + tl.program_id(0), tl.sum(total, axis=0))


def shard_losses(others_SBP: Tensor | None, targets_SB: Tensor) -> Tensor:
    """Return each shard's sum, float64 [S]; its order does not depend on the number of shards.

    Args:
        others_SBP: Of `slopes_of_products`, or None.
        targets_SB: Of `unit_target_deltas` or `softmax_target_deltas`.
    """
    num_shards, num_targets = targets_SB.shape
    losses_S = torch.empty(num_shards, dtype=torch.float64, device=targets_SB.device)
    _shard_losses_kernel[(num_shards,)](
        others_SBP,  # [S, B, P] float64, or None
        targets_SB,  # [S, B] float64
        losses_S,  # [S] float64, out
        0 if others_SBP is None else others_SBP[0].numel(),
        num_targets,
        NUMBERS=_NUMBERS,
        enable_fp_fusion=False,
    )
    return losses_S
