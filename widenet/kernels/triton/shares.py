"""The shares of a tile of a softmax: torch would pass over the logits six times."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_AT_ONCE = 1024
"""Logits of an example that a program has at hand."""


@triton.jit
def _shares_kernel(
    logits, shares, peaks, totals, hidden, num_examples, num_units, num_columns, BLOCK: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64) * num_examples + tl.program_id(0)
    before, lanes = tl.load(peaks + row), tl.arange(0, BLOCK)
    highest = tl.zeros([BLOCK], tl.float32) + before
    for start in range(0, num_units, BLOCK):
        inside = start + lanes < num_units
        highest = tl.maximum(
            highest, tl.load(logits + row * num_units + start + lanes, inside, -float("inf"))
        )
    peak = tl.max(highest)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, num_units, BLOCK):
        inside = start + lanes < num_units
        logit = tl.load(logits + row * num_units + start + lanes, inside, -float("inf"))
        share = tl.exp(logit - peak).to(shares.dtype.element_ty)
        tl.store(shares + row * num_units + start + lanes, share, inside)
        sums += share.to(tl.float32)
    total = tl.load(totals + row) * tl.exp((before - peak).to(tl.float64))
    tl.store(totals + row, total + tl.sum(sums).to(tl.float64))
    tl.store(peaks + row, peak)
    for start in range(0, num_columns, BLOCK):
        places, inside = hidden + row * num_columns + start + lanes, start + lanes < num_columns
        tl.store(places, tl.load(places, inside, 0.0) * tl.exp(before - peak), inside)


def tile_shares(logits_ET: Tensor, peak_E: Tensor, total_E: Tensor, hidden_EH: Tensor, half: bool) -> Tensor:
    """See `reference.tile_shares`."""
    share_ET = torch.empty_like(logits_ET, dtype=torch.bfloat16) if half else logits_ET
    num_examples, num_units = logits_ET.shape[-2:]
    if logits_ET.numel():
        _shares_kernel[num_examples, peak_E.numel() // num_examples](
            logits_ET,  # [S, E, T] float32
            share_ET,  # [S, E, T] float32 or bfloat16, out; may be the logits
            peak_E,  # [S, E] float32, in and out
            total_E,  # [S, E] float64, in and out
            hidden_EH,  # [S, E, H] float32, in and out
            num_examples,
            num_units,
            hidden_EH.shape[-1],
            BLOCK=min(triton.next_power_of_2(num_units), _AT_ONCE),
            enable_fp_fusion=False,
        )
    return share_ET
