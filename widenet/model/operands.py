"""Matrix products with operands rounded to bfloat16, and float32 products, sums and results."""

from collections.abc import Callable

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
    """Return left @ right, float32 [R, C]; both operands are float32, or both come from `rounded`.

    If one or both come for several shards, [S, R, K] and [S, K, C], so does the result. They are multiplied
    in one launch if a first product of their shapes has given the bits of each shard's own.
    """
    shards = (left_RK if left_RK.dim() > 2 else right_KC).shape[:-2]
    if not shards:
        return _product(torch.mm, left_RK, right_KC)
    both = [each.expand(*shards, *each.shape[-2:]) for each in (left_RK, right_KC)]
    is_tf32 = torch.backends.cuda.matmul.allow_tf32
    key = (left_RK.dtype, is_tf32, *(each.shape + each.stride() for each in both))
    if key not in _BATCHED:
        each = zip(_product(torch.bmm, *both), *both, strict=True)
        _BATCHED[key] = all(torch.equal(found, _product(torch.mm, *own)) for found, *own in each)
    if _BATCHED[key]:
        return _product(torch.bmm, *both)
    return torch.stack([_product(torch.mm, *own) for own in zip(*both, strict=True)])


def _product(multiply: Callable[..., Tensor], left: Tensor, right: Tensor) -> Tensor:
    if left.dtype == torch.bfloat16:
        return multiply(left, right, out_dtype=torch.float32)
    return multiply(left, right)


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
    if left_RK.dtype == torch.bfloat16 or left_RK.dim() > 2:
        total_RC.add_(matrix_product(left_RK, right_KC))
    else:
        total_RC.addmm_(left_RK, right_KC)
