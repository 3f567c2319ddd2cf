"""Sparse input on any device through torch's embedding bag: one thread or warp adds up each row, in storage order."""

import torch
from torch import Tensor

from widenet.sparse import SparseBatch


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    if batch.num_entries == 0:
        return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1])
    return _bag_sum(batch.indices, batch.indptr, batch.values, weight_FH)


def row_gradient(batch: SparseBatch, gradient_EH: Tensor) -> tuple[Tensor, Tensor]:
    """See `reference.row_gradient`. The transposed batch is itself a batch: its examples are the features."""
    if batch.num_entries == 0:
        return batch.indices.new_zeros(0, dtype=torch.int64), gradient_EH.new_zeros(0, gradient_EH.shape[1])
    sorted_Z, order_Z = torch.sort(batch.indices, stable=True)
    features_U, counts_U = torch.unique_consecutive(sorted_Z, return_counts=True)
    indptr = torch.zeros(len(features_U) + 1, dtype=torch.int64, device=gradient_EH.device)
    torch.cumsum(counts_U, 0, out=indptr[1:])
    examples_Z = batch.example_of_entry()[order_Z]
    values_Z = None if batch.values is None else batch.values[order_Z]
    return features_U.long(), _bag_sum(examples_Z, indptr, values_Z, gradient_EH)


def _bag_sum(indices_Z: Tensor, indptr: Tensor, values_Z: Tensor | None, rows: Tensor) -> Tensor:
    offsets = indptr.to(indices_Z.dtype)
    return torch.nn.functional.embedding_bag(indices_Z, rows, offsets, mode="sum", per_sample_weights=values_Z, include_last_offset=True)
