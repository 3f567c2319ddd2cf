"""Rows of which only some numbers are stored, and products of them."""

import torch
from torch import Tensor

from widenet.kernels import reference
from widenet.kernels.largest import largest
from widenet.kernels.table import runner
from widenet.plan.pruning import column_bytes


def column_type(columns: int) -> torch.dtype:
    """Return the type that holds the columns of rows of this length."""
    return torch.uint8 if column_bytes(columns) == 1 else torch.int16


def pruned(rows_RH: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest numbers of each row, in the order of their columns; see `largest`.

    Returns:
        The columns, uint8 or int16 [R, k], and the numbers, float32 [R, k].
    """
    column_RK = largest(rows_RH, k).sort(dim=1).values
    return column_RK.to(column_type(rows_RH.shape[1])), rows_RH.gather(1, column_RK)


def widened(column_RK: Tensor, value_RK: Tensor, columns: int) -> Tensor:
    """Return rows with all their numbers, float32 [R, H], zeros where nothing is stored."""
    rows_RH = value_RK.new_zeros(len(value_RK), columns)
    return rows_RH.scatter_(1, column_RK.long(), value_RK)


def pruned_logits(
    direct_EH: Tensor, column_TK: Tensor, value_TK: Tensor, factor_T: Tensor, bias_T: Tensor
) -> Tensor:
    """See `reference.pruned_logits`, whose bits all implementations give."""
    if runner("pruned_logits", direct_EH.device, len(direct_EH) * value_TK.numel()) == "numba":
        from widenet.kernels.compiled_pruned import logits

        return logits(direct_EH, column_TK, value_TK, factor_T, bias_T)
    return reference.pruned_logits(direct_EH, column_TK, value_TK, factor_T, bias_T)
