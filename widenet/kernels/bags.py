"""Sparse input on any device through torch's embedding bag: one thread or warp adds up each row, in storage order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.sparse import SparseBatch


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    if batch.num_entries == 0:
        return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1])
    return _bag_sum(batch.indices, batch.indptr, batch.values, weight_FH)


@dataclass(frozen=True)
class RowGradient:
    """The gradient of `gather_sum` to the rows that a batch touches, made when asked for, so that it need not lie in memory at once.

    features_U: int64 [U], ascending. indptr: int64 [U + 1]; of feature u the entries indptr[u] to indptr[u + 1] - 1.
    examples_Z, values_Z: of every entry, sorted by feature. gradient_EH: float32 [E, H], the gradient to the sums.
    """

    features_U: Tensor
    indptr: Tensor
    examples_Z: Tensor
    values_Z: Tensor | None
    gradient_EH: Tensor

    def __len__(self) -> int:
        """Number of touched rows."""
        return len(self.features_U)

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The gradients float32 [stop - start, H] of the features start to stop - 1, in their order; of all without a stop."""
        stop = len(self) if stop is None else stop
        if start == stop:
            return self.gradient_EH.new_zeros(0, self.gradient_EH.shape[1])
        indptr = self.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        values_Z = None if self.values_Z is None else self.values_Z[first:last]
        return _bag_sum(self.examples_Z[first:last], indptr - first, values_Z, self.gradient_EH)


def row_gradient(batch: SparseBatch, gradient_EH: Tensor) -> RowGradient:
    """See `reference.row_gradient`. The transposed batch is itself a batch: its examples are the features."""
    sorted_Z, order_Z = torch.sort(batch.indices, stable=True)
    features_U, counts_U = torch.unique_consecutive(sorted_Z, return_counts=True)
    indptr = torch.zeros(len(features_U) + 1, dtype=torch.int64, device=gradient_EH.device)
    torch.cumsum(counts_U, 0, out=indptr[1:])
    examples_Z = batch.example_of_entry()[order_Z]
    values_Z = None if batch.values is None else batch.values[order_Z]
    return RowGradient(features_U.long(), indptr, examples_Z, values_Z, gradient_EH)


def _bag_sum(indices_Z: Tensor, indptr: Tensor, values_Z: Tensor | None, rows: Tensor) -> Tensor:
    offsets = indptr.to(indices_Z.dtype)
    return torch.nn.functional.embedding_bag(indices_Z, rows, offsets, mode="sum", per_sample_weights=values_Z, include_last_offset=True)
