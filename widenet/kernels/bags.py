"""Sparse input: by Triton's kernel where a device has it, elsewhere by torch's embedding bag; either adds
up each row in storage order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.order import grouped
from widenet.kernels.table import runner
from widenet.sparse import SparseBatch


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    if runner("gather_sum", weight_FH.device) == "triton":
        from widenet.kernels.triton.gather_sum import gather_sum as launched

        return launched(batch, weight_FH)
    if batch.num_entries == 0:
        return weight_FH.new_zeros(batch.num_examples, weight_FH.shape[1])
    return _bag_sum(batch.indices, batch.indptr, batch.values, weight_FH)


@dataclass(frozen=True)
class Touched:
    """The rows that a batch touches, and its entries by row: all of their gradient that is known before the
    step.

    features_U: int64 [U], ascending. indptr: int64 [U + 1]; of feature u the entries indptr[u] to indptr[u +
    1] - 1.
    examples_Z, values_Z: of every entry, sorted by feature.
    """

    features_U: Tensor
    indptr: Tensor
    examples_Z: Tensor
    values_Z: Tensor | None

    @classmethod
    def of(cls, batch: SparseBatch) -> "Touched":
        """The batch turned round, which is itself a batch: its examples are the features."""
        return _by_feature(batch.indices, batch.example_of_entry(), batch.values)

    def by(self, gradient_EH: Tensor) -> "RowGradient":
        """The gradient to the rows, given that to the sums."""
        return RowGradient(self.features_U, self.indptr, self.examples_Z, self.values_Z, gradient_EH)


@dataclass(frozen=True)
class RowGradient(Touched):
    """The gradient of `gather_sum` to the rows that a batch touches, made when asked for, so that it need not
    lie in memory at once.

    gradient_EH: float32 [E, H], the gradient to the sums.
    """

    gradient_EH: Tensor

    @classmethod
    def of_rows(cls, features_U: Tensor, gradient_UH: Tensor) -> "RowGradient":
        """The gradients of these rows, ascending, one each."""
        places = torch.arange(len(features_U) + 1, device=features_U.device)
        return cls(features_U, places, places[:-1], None, gradient_UH)

    def plus(self, other: "RowGradient") -> "RowGradient":
        """The rows of both; of those that both touch, the sums."""
        features_Z = torch.cat(
            [torch.repeat_interleave(each.features_U, each.indptr.diff()) for each in (self, other)]
        )
        examples_Z = torch.cat([self.examples_Z, other.examples_Z + len(self.gradient_EH)])
        values = [
            torch.ones(len(each.examples_Z)) if each.values_Z is None else each.values_Z
            for each in (self, other)
        ]
        values_Z = (
            None
            if self.values_Z is None and other.values_Z is None
            else torch.cat([each.to(features_Z.device) for each in values])
        )
        return _by_feature(features_Z, examples_Z, values_Z).by(
            torch.cat([self.gradient_EH, other.gradient_EH])
        )

    def __len__(self) -> int:
        """Number of touched rows."""
        return len(self.features_U)

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The gradients float32 [stop - start, H] of the features start to stop - 1, in their order; of
        all without a stop.
        """
        stop = len(self) if stop is None else stop
        if start == stop:
            return self.gradient_EH.new_zeros(0, self.gradient_EH.shape[1])
        indptr = self.indptr[start : stop + 1]
        is_whole = stop - start == len(self)
        first, last = (0, len(self.examples_Z)) if is_whole else indptr[:: stop - start].tolist()
        values_Z = None if self.values_Z is None else self.values_Z[first:last]
        return _bag_sum(self.examples_Z[first:last], indptr - first, values_Z, self.gradient_EH)


def row_gradient(batch: SparseBatch, gradient_EH: Tensor) -> RowGradient:
    """See `reference.row_gradient`."""
    return Touched.of(batch).by(gradient_EH)


def _by_feature(features_Z: Tensor, examples_Z: Tensor, values_Z: Tensor | None) -> Touched:
    features_U, indptr, order_Z = grouped(features_Z)
    values_Z = None if values_Z is None else values_Z[order_Z]
    return Touched(features_U, indptr, examples_Z[order_Z], values_Z)


def _bag_sum(indices_Z: Tensor, indptr: Tensor, values_Z: Tensor | None, rows: Tensor) -> Tensor:
    offsets = indptr.to(indices_Z.dtype)
    return torch.nn.functional.embedding_bag(
        indices_Z, rows, offsets, mode="sum", per_sample_weights=values_Z, include_last_offset=True
    )
