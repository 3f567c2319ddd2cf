"""Matrix products with operands rounded to bfloat16, and float32 products, sums and results."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.plan.tiles import PREDICTED_COLUMNS

SHORTEST = 1e-12
"""Vectors up to this length have no direction: under "cosine" they score zero and nothing pulls them."""

_BATCHED: dict[tuple[object, ...], bool] = {}
"""By shapes and settings, whether products of several shards in one launch have the bits of each alone.

A vendor's library may choose its code by the number of products, and bits must not depend on which process
holds which shards.
"""


def matrix_product(left_RK: Tensor, right_KC: Tensor) -> Tensor:
    """Return left @ right, float32 [R, C]; both operands are float32, or both come from `rounded`."""
    return _product(torch.mm, left_RK, right_KC)


def stacked_product(left: Tensor, right: Tensor, total: Tensor | None = None) -> Tensor:
    """Return left @ right, float32 [S, R, C], for several shards on CUDA; operands as for `matrix_product`.

    They are multiplied in one launch if a first product of their shapes has given the bits of each shard's
    own.

    Args:
        left: [S, R, K], or [R, K] for all shards.
        right: [S, K, C], or [K, C] for all shards.
        total: To which the product is added, in place, and which is returned.
    """
    shards = (left if left.dim() > 2 else right).shape[0]
    left, right = (each.expand(shards, *each.shape[-2:]) for each in (left, right))
    if shards == 1:
        return _stacked(left, right, total)
    is_tf32 = torch.backends.cuda.matmul.allow_tf32
    key = (left.dtype, is_tf32, total is None, *(each.shape + each.stride() for each in (left, right)))
    if _BATCHED.get(key, False):
        return _stacked(left, right, total)
    totals = [None] * shards if total is None else torch.split(total, 1)
    before = None if total is None or key in _BATCHED else total.clone()
    alone = torch.cat([*map(_stacked, torch.split(left, 1), torch.split(right, 1), totals)])
    if key not in _BATCHED:
        _BATCHED[key] = torch.equal(alone, _stacked(left, right, before))
    return alone if total is None else total


def _stacked(left: Tensor, right: Tensor, total: Tensor | None) -> Tensor:
    if total is None:
        return _product(torch.bmm, left, right)
    return _product(partial(torch.baddbmm, total, out=total), left, right)


def _product(multiply: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    if left.dtype == torch.bfloat16:
        return multiply(left, right, out_dtype=torch.float32)
    return multiply(left, right)


def filled(values_RC: Tensor, rows: int = 1, columns: int = 1) -> Tensor:
    """Return a matrix with zeros after its rows and columns, up to multiples of `rows` and `columns`."""
    below, beside = -len(values_RC) % rows, -values_RC.shape[1] % columns
    return pad(values_RC, (0, beside, 0, below)) if below or beside else values_RC


def wide_enough(right_KC: Tensor) -> Tensor:
    """Return a matrix with zeros after its columns, if there are fewer than `PREDICTED_COLUMNS`."""
    missing = PREDICTED_COLUMNS - right_KC.shape[1]
    return pad(right_KC, (0, missing)) if missing > 0 else right_KC


def fill_product(result_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Write left @ right into a float32 result; operands as for `matrix_product`."""
    _product(partial(torch.mm, out=result_RC), left_RK, right_KC)


def add_product(total_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Add left @ right to a float32 total, in place; operands as for `matrix_product`."""
    if left_RK.dtype == torch.bfloat16:
        total_RC.add_(matrix_product(left_RK, right_KC))
    else:
        total_RC.addmm_(left_RK, right_KC)
