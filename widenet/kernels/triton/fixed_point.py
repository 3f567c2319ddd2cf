"""Fixed-point sums: reads each term once and adds it to the integers in place."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit
def _kernel(total, term, scales, num, row_length, IS_FIRST: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num
    scale = tl.load(scales + place // row_length, mask=inside, other=0.0)
    fixed = (tl.load(term + place, mask=inside, other=0.0).to(tl.float64) * scale).to(tl.int64)
    if not IS_FIRST:
        fixed += tl.load(total + place, mask=inside, other=0)
    tl.store(total + place, fixed, mask=inside)


def fixed_sum(terms: Sequence[Tensor], scales: Tensor) -> Tensor:
    """See `fixed_point.fixed_sum`. Infinities and NaN may give any integer, as there."""
    total = torch.empty(terms[0].shape, dtype=torch.int64, device=terms[0].device)
    if not total.numel():
        return total
    row_length = total.numel() // scales.numel()
    for index, term in enumerate(terms):
        _kernel[(triton.cdiv(total.numel(), _BLOCK),)](
            total,  # [E, H] int64, in and out
            term.contiguous(),  # [E, H] float32 or float64
            scales,  # [E, 1] float64; of terms with fewer dimensions one for each number
            total.numel(),
            row_length,
            IS_FIRST=index == 0,
            BLOCK=_BLOCK,
            enable_fp_fusion=False,
        )
    return total
