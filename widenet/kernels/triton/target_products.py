"""The logits of sparse targets, each from its own two vectors."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ENTRIES, _INNER = 16, 128


@triton.jit
def _target_products_kernel(
    direct,
    weights,
    biases,
    examples,
    rows,
    logits,
    num_entries,
    num_inner,
    direct_stride,
    weight_stride,
    ENTRIES: tl.constexpr,
    INNER: tl.constexpr,
):
    entry = tl.program_id(0) * ENTRIES + tl.arange(0, ENTRIES)
    is_entry = entry < num_entries
    example = tl.load(examples + entry, mask=is_entry, other=0)
    row = tl.load(rows + entry, mask=is_entry, other=0)
    total = tl.zeros((ENTRIES, INNER), tl.float32)
    for first in range(0, num_inner, INNER):
        inner = first + tl.arange(0, INNER)
        inside = is_entry[:, None] & (inner < num_inner)[None, :]
        a = tl.load(direct + example[:, None] * direct_stride + inner[None, :], mask=inside, other=0.0)
        b = tl.load(weights + row[:, None] * weight_stride + inner[None, :], mask=inside, other=0.0)
        total += a.to(tl.float32) * b.to(direct.dtype.element_ty).to(tl.float32)
    z = tl.sum(total, axis=1)
    if biases is not None:
        z += tl.load(biases + row, mask=is_entry, other=0.0)
    tl.store(logits + entry, z, mask=is_entry)


def target_products(
    direct_EK: Tensor, weight_RH: Tensor, bias_R: Tensor | None, examples_Z: Tensor, rows_Z: Tensor
) -> Tensor:
    """Return the logits of entries, float32 [Z].

    Args:
        direct_EK: The incoming vectors, bfloat16 or float32; the weights are rounded to the same type.
        weight_RH: The weight, float32; H is at most K.
        bias_R: float32, or None.
        examples_Z: int64.
        rows_Z: Rows of the weight, int64.
    """
    logits_Z = torch.empty(len(rows_Z), device=weight_RH.device)
    if len(rows_Z):
        _target_products_kernel[(triton.cdiv(len(rows_Z), _ENTRIES),)](
            direct_EK,  # [E, K] bfloat16 or float32
            weight_RH,  # [R, H] float32
            bias_R,  # [R] float32, or None
            examples_Z,  # [Z] int64
            rows_Z,  # [Z] int64
            logits_Z,  # [Z] float32, out
            len(rows_Z),
            weight_RH.shape[1],
            direct_EK.stride(0),
            weight_RH.stride(0),
            ENTRIES=_ENTRIES,
            INNER=_INNER,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return logits_Z
