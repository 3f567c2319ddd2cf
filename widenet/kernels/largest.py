"""The largest numbers of rows, by magnitude: which of each row stay when it is pruned."""

import torch
from torch import Tensor


def largest(rows_RH: Tensor, k: int) -> Tensor:
    """Return the columns of the k largest magnitudes of each row, int64 [R, k], in any order.

    Of equal magnitudes the first columns count as larger, so that every device chooses the same.

    Args:
        rows_RH: float32, finite.
        k: Number of columns, at most H.
    """
    columns = rows_RH.shape[1]
    ahead_H = torch.arange(columns - 1, -1, -1, device=rows_RH.device)
    key_RH = rows_RH.contiguous().view(torch.int32).bitwise_and(2**31 - 1).long() * columns + ahead_H
    return key_RH.topk(k, dim=1, sorted=False).indices


def zero_others(rows_RH: Tensor, k: int, *others_RH: Tensor) -> None:
    """Set all but the k largest numbers of each row, and those beside them in others, to zero, in place."""
    is_zero_RH = torch.ones_like(rows_RH, dtype=torch.bool).scatter_(1, largest(rows_RH, k), False)
    for tensor_RH in (rows_RH, *others_RH):
        tensor_RH.masked_fill_(is_zero_RH, 0)
