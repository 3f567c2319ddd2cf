"""A tile of a softmax output: the gradient to its logits without the targets' pulls, p * sum of the
example's pulls.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.tile_part import store_deltas, tile_part

_EXAMPLES, _UNITS = 64, 128
"""Of a program's part of a tile."""


@triton.jit
def _kernel(
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
    """exp(z - log_sum) * coupling, [E, T] of the products' type, and its sums over examples, float32 [T].

    products_ET: float32, the logits without the biases. log_sum_E: float32, the logarithm of the softmax's
    denominator. Order of addition: within parts of 64 examples, then over these.
    """
    num_examples, num_units = products_ET.shape
    delta_ET = torch.empty_like(products_ET)
    grid = triton.cdiv(num_units, _UNITS), triton.cdiv(num_examples, _EXAMPLES)
    column_sums_RT = torch.empty(grid[1], num_units, device=products_ET.device)
    if delta_ET.numel():
        _kernel[grid](
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
