"""The gradient to a tile's softmax logits without the targets' pulls: p * sum of the example's pulls."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.tile_part import store_deltas, tile_part

_EXAMPLES, _UNITS = 64, 128
"""Size of a program's part of a tile."""


@triton.jit
def _softmax_tile_kernel(
    products,
    biases,
    logarithms,
    couplings,
    deltas,
    column_sums,
    num_examples,
    num_units,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
):
    examples, units, place, inside, z = tile_part(products, biases, num_examples, num_units, EXAMPLES, UNITS)
    logarithm = tl.load(logarithms + examples, mask=examples < num_examples, other=0.0)
    coupling = tl.load(couplings + examples, mask=examples < num_examples, other=0.0)
    delta = tl.where(inside, tl.exp(z - logarithm[:, None]) * coupling[:, None], 0.0)
    store_deltas(deltas, column_sums, delta, place, inside, units, num_units)


def softmax_tile(
    products_ET: Tensor, bias_T: Tensor | None, log_sum_E: Tensor, coupling_E: Tensor
) -> tuple[Tensor, Tensor]:
    """Return exp(z - log_sum) * coupling, [E, T], and its sums over examples, float32 [T].

    The order of addition is within parts of 64 examples, then over the parts.

    Args:
        products_ET: Logits without the biases, float32.
        bias_T: float32, or None.
        log_sum_E: Logarithm of the softmax's denominator, float32.
        coupling_E: float32.
    """
    num_examples, num_units = products_ET.shape
    delta_ET = torch.empty_like(products_ET)
    grid = triton.cdiv(num_units, _UNITS), triton.cdiv(num_examples, _EXAMPLES)
    column_sums_RT = torch.empty(grid[1], num_units, device=products_ET.device)
    if delta_ET.numel():
        _softmax_tile_kernel[grid](
            products_ET,  # [E, T] float32
            bias_T,  # [T] float32, or None
            log_sum_E,  # [E] float32
            coupling_E,  # [E] float32
            delta_ET,  # [E, T] of the products' type, out
            column_sums_RT,  # [R, T] float32, out: R parts of the examples
            num_examples,
            num_units,
            EXAMPLES=_EXAMPLES,
            UNITS=_UNITS,
            num_warps=8,
            enable_fp_fusion=False,
        )
    return delta_ET, column_sums_RT.sum(dim=0)
