"""The statistics of a softmax over each shard, from those of blocks of units."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_EXAMPLES = 32


@triton.jit
def _softmax_merge_kernel(
    peaks, sums, shard_peaks, shard_sums, num_blocks, num_examples, EXAMPLES: tl.constexpr
):
    shard = tl.program_id(1).to(tl.int64)
    examples = tl.program_id(0) * EXAMPLES + tl.arange(0, EXAMPLES)
    inside = examples < num_examples
    place = shard * num_blocks * num_examples + examples
    peak = tl.full((EXAMPLES,), -float("inf"), tl.float32)
    total = tl.zeros((EXAMPLES,), tl.float64)
    for _ in range(num_blocks):
        own = tl.load(peaks + place, mask=inside, other=-float("inf"))
        share = tl.load(sums + place, mask=inside, other=0.0).to(tl.float64)
        higher = tl.maximum(peak, own)
        shift = tl.where(higher == -float("inf"), 0.0, higher).to(tl.float64)
        total = total * tl.exp(peak.to(tl.float64) - shift) + share * tl.exp(own.to(tl.float64) - shift)
        peak = higher
        place += num_examples
    tl.store(shard_peaks + shard * num_examples + examples, peak, mask=inside)
    tl.store(shard_sums + shard * num_examples + examples, total, mask=inside)


def softmax_merge(peaks_SBE: Tensor, sums_SBE: Tensor) -> tuple[Tensor, Tensor]:
    """Return each shard's largest logit, float32 [S, E], and sum of exp(z - largest), float64 [S, E].

    The order of addition is that of the blocks. peaks_SBE and sums_SBE are of `softmax_products`, float32.
    """
    num_shards, num_blocks, num_examples = peaks_SBE.shape
    peak_SE = torch.empty(num_shards, num_examples, device=peaks_SBE.device)
    sum_SE = torch.empty_like(peak_SE, dtype=torch.float64)
    if peak_SE.numel():
        _softmax_merge_kernel[triton.cdiv(num_examples, _EXAMPLES), num_shards](
            peaks_SBE,  # [S, B, E] float32
            sums_SBE,  # [S, B, E] float32
            peak_SE,  # [S, E] float32, out
            sum_SE,  # [S, E] float64, out
            num_blocks,
            num_examples,
            EXAMPLES=_EXAMPLES,
            num_warps=1,
            enable_fp_fusion=False,
        )
    return peak_SE, sum_SE
