"""The first pass of a softmax: every example's largest logit and sum of exponentials, tile by tile."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048
"""Units of a tile that are processed at the same time."""


@triton.jit
def _softmax_sums_kernel(products, biases, peaks, totals, num_units, BLOCK: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    peak, total = tl.load(peaks + example), tl.load(totals + example)
    for start in range(0, num_units, BLOCK):
        units = start + tl.arange(0, BLOCK)
        inside = units < num_units
        z = tl.load(products + example * num_units + units, mask=inside, other=-float("inf")).to(tl.float32)
        if biases is not None:
            z += tl.load(biases + units, mask=inside, other=0.0)
        higher = tl.maximum(peak, tl.max(z, axis=0))
        share = tl.sum(tl.exp(z - higher), axis=0).to(tl.float64)
        total = total * tl.exp((peak - higher).to(tl.float64)) + share
        peak = higher
    tl.store(peaks + example, peak)
    tl.store(totals + example, total)


def add_softmax_sums(products_ET: Tensor, bias_T: Tensor | None, peak_E: Tensor, total_E: Tensor) -> None:
    """Add a tile to the running largest logit and sum of exp(z - largest), in place.

    The order of addition is by 2,048 units. products_ET are the logits without the biases, float32.
    """
    num_examples, num_units = products_ET.shape
    if not products_ET.numel():
        return
    _softmax_sums_kernel[(num_examples,)](
        products_ET,  # [E, T] float32
        bias_T,  # [T] float32, or None
        peak_E,  # [E] float32, in and out; -inf before the first tile
        total_E,  # [E] float64, in and out; 0 before the first tile
        num_units,
        BLOCK=_BLOCK,
        num_warps=8,
        enable_fp_fusion=False,
    )
