"""Matrix products with operands rounded to bfloat16, and float32 products, sums and results."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.plan.tiles import PREDICTED_COLUMNS

SHORTEST = 1e-12
"""Vectors up to this length have no direction: under "cosine" they score zero and nothing pulls them."""


def rounded(values: Tensor) -> Tensor:
    """Round float32 values to bfloat16, for a product.

    CUDA gets bfloat16 numbers, which it multiplies faster. A CPU gets the same values as float32: torch has
    no product on a CPU that takes bfloat16 and gives float32.
    """
    half = values.bfloat16()
    return half.float() if values.device.type == "cpu" else half


def matrix_product(left_RK: Tensor, right_KC: Tensor) -> Tensor:
    """Return left @ right, float32 [R, C]; both operands are float32, or both come from `rounded`."""
    if left_RK.dtype == torch.bfloat16:
        return torch.mm(left_RK, right_KC, out_dtype=torch.float32)
    return left_RK @ right_KC


def filled(values_RK: Tensor, rows: int) -> Tensor:
    """Return a matrix with zeros after its rows, up to a multiple of `rows`."""
    missing = -len(values_RK) % rows
    return pad(values_RK, (0, 0, 0, missing)) if missing else values_RK


def filled_columns(values_RC: Tensor, columns: int) -> Tensor:
    """Return a matrix with zeros after its columns, up to a multiple of `columns`."""
    missing = -values_RC.shape[1] % columns
    return pad(values_RC, (0, missing)) if missing else values_RC


def wide_enough(right_KC: Tensor) -> Tensor:
    """Return a matrix with zeros after its columns, if there are fewer than `PREDICTED_COLUMNS`."""
    missing = PREDICTED_COLUMNS - right_KC.shape[1]
    return pad(right_KC, (0, missing)) if missing > 0 else right_KC


def fill_product(result_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Write left @ right into a float32 result; operands as for `matrix_product`."""
    if left_RK.dtype == torch.bfloat16:
        result_RC.copy_(matrix_product(left_RK, right_KC))
    else:
        torch.mm(left_RK, right_KC, out=result_RC)


def add_product(total_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Add left @ right to a float32 total, in place; operands as for `matrix_product`."""
    if left_RK.dtype == torch.bfloat16:
        total_RC.add_(matrix_product(left_RK, right_KC))
    else:
        total_RC.addmm_(left_RK, right_KC)
