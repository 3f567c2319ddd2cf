"""The operations in plain torch: what every faster implementation must give."""

import torch
from torch import Tensor

from widenet.sparse import SparseBatch


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """Sum, for every example, the weight rows of its features, times their values.

    batch: E examples over F features.
    weight_FH: float32 [F, H].
    Returns float32 [E, H]; an example without features gives zeros; duplicates add up.
    Order of addition: storage order within an example.
    """
    rows_ZH = weight_FH.index_select(0, batch.indices)
    if batch.values is not None:
        rows_ZH = rows_ZH * batch.values[:, None]
    return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1]).index_add_(
        0, batch.example_of_entry(), rows_ZH
    )


def row_gradient(batch: SparseBatch, gradient_EH: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of `gather_sum` to the weight, only for the rows that the batch touches.

    gradient_EH: float32 [E, H], the gradient to the sums.
    Returns features int64 [U], ascending, and their gradient rows float32 [U, H].
    Order of addition: by example, then storage order.
    """
    features_U, position_Z = torch.unique(batch.indices, sorted=True, return_inverse=True)
    rows_ZH = gradient_EH.index_select(0, batch.example_of_entry())
    if batch.values is not None:
        rows_ZH = rows_ZH * batch.values[:, None]
    gradient_UH = gradient_EH.new_zeros(len(features_U), gradient_EH.shape[1]).index_add_(
        0, position_Z, rows_ZH
    )
    return features_U.long(), gradient_UH


def wide_top_k(logits_EL: Tensor, excluded: SparseBatch | None, k: int) -> tuple[Tensor, Tensor]:
    """The k largest logits of every example, and where they stand.

    excluded: units that must not appear, per example. Returns logits float32 [E, k] descending and units
    int64 [E, k]; of equal logits the lower unit comes first; places without a unit hold -inf and -1.
    """
    logits_EL = logits_EL.clone()
    if excluded is not None:
        logits_EL[excluded.example_of_entry(), excluded.indices.long()] = -torch.inf
    top_EK, units_EK = torch.sort(logits_EL, dim=1, descending=True, stable=True)
    top_EK, units_EK = top_EK[:, :k], units_EK[:, :k]
    return top_EK, torch.where(top_EK == -torch.inf, -1, units_EK)
