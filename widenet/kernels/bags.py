"""Rows of wide weights: memory, copies, sums in storage order and their gradients; sorts, cuts by shard."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.native import call, check_dtypes, library_runs, packed, triton_runs
from widenet.sparse import SparseBatch, indptr_of, stacked


def roomy(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """Return zeros; on a CPU in large pages if the system has them.

    A step touches rows all over a wide weight, and looking up a row in small pages takes long. NumPy asks the
    system for large pages, torch does not.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(tuple(shape), dtype=str(dtype).removeprefix("torch.")))


@contextmanager
def copied(
    weight_RH: Tensor, state: Mapping[str, Tensor], rows_U: Tensor
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Give copies of some rows [U, H] of a weight and its state; write them back after the block.

    Args:
        weight_RH: The weight.
        state: Tensors [R, H] by name.
        rows_U: int64, without repeats.
    """
    weight_UH = weight_RH.index_select(0, rows_U)
    state_of_rows = {name: tensor.index_select(0, rows_U) for name, tensor in state.items()}
    yield weight_UH, state_of_rows
    weight_RH.index_copy_(0, rows_U, weight_UH)
    for name, tensor in state_of_rows.items():
        state[name].index_copy_(0, rows_U, tensor)


def stable_sort(keys_Z: Tensor) -> tuple[Tensor, Tensor]:
    """Sort integers of at least 0; equal ones keep their order.

    Returns:
        The sorted keys, int64 [Z], and the former position of each, int64 [Z].
    """
    if not library_runs(keys_Z.device):
        sorted_Z, order_Z = torch.sort(keys_Z, stable=True)
        return sorted_Z.long(), order_Z
    # Separate tensors, so that the half used as workspace is freed earlier than the result.
    keys = keys_Z.to(torch.int64, copy=True), torch.empty(len(keys_Z), dtype=torch.int64)
    orders = torch.empty_like(keys[0]), torch.empty_like(keys[0])
    last = call("sort", keys, orders, len(keys_Z))
    return keys[last], orders[last]


def grouped(keys_Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sort keys as `stable_sort`, and group equal ones.

    Returns:
        The distinct keys [U]; the first entry of each among the sorted entries, int64 [U + 1]; and the former
        position of each entry, int64 [Z].
    """
    sorted_Z, order_Z = stable_sort(keys_Z)
    if not library_runs(keys_Z.device):
        keys_U, counts_U = torch.unique_consecutive(sorted_Z, return_counts=True)
        return keys_U, indptr_of(counts_U), order_Z
    keys_U, indptr = torch.empty_like(sorted_Z), torch.empty(len(sorted_Z) + 1, dtype=torch.int64)
    count = call("group", sorted_Z, len(sorted_Z), keys_U, indptr)
    return keys_U[:count], indptr[: count + 1], order_Z


def cut(batch: SparseBatch, num_shards: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sort a batch's entries by shard, then example, then storage order.

    Args:
        batch: E examples.
        num_shards: Number of shards; see `plan.tiles.Shards`.

    Returns:
        The first entry of every shard and example, int64 [shards x E + 1]; the units, as rows of their
        shards [Z]; and the former position of every entry, int64 [Z].
    """
    num = batch.num_examples
    if not library_runs(batch.indices.device):
        shard_Z, units_Z = batch.indices % num_shards, batch.indices // num_shards
        counts = torch.bincount(shard_Z * num + batch.example_of_entry(), minlength=num_shards * num)
        order_Z = stable_sort(shard_Z)[1]
        return indptr_of(counts), units_Z[order_Z], order_Z
    bounds = torch.empty(num_shards * num + 1, dtype=torch.int64)
    units_Z, order_Z = torch.empty_like(batch.indices), torch.empty(batch.num_entries, dtype=torch.int64)
    indices_Z, dtype = batch.indices.contiguous(), str(batch.indices.dtype).rpartition(".")[2]
    given = batch.indptr.contiguous(), num, indices_Z, num_shards
    check_dtypes(int64=[batch.indptr])
    call(f"cut_{dtype}", *given, bounds, units_Z, order_Z)
    return bounds, units_Z, order_Z


def split(batch: SparseBatch, num_shards: int) -> list[SparseBatch]:
    """Return each shard's entries of a batch, in storage order, with units as rows of the shard."""
    bounds, units_Z, order_Z = cut(batch, num_shards)
    values_Z = None if batch.values is None else batch.values[order_Z]
    num, parts = batch.num_examples, []
    edges = bounds[:: max(num, 1)].tolist() if num else [0] * (num_shards + 1)
    for shard in range(num_shards):
        span = slice(edges[shard], edges[shard + 1])
        indptr = bounds[shard * num : (shard + 1) * num + 1] - edges[shard]
        parts.append(SparseBatch(indptr, units_Z[span], None if values_Z is None else values_Z[span]))
    return parts


def gather_sum(batch: SparseBatch, weight_FH: Tensor) -> Tensor:
    """See `reference.gather_sum`."""
    if triton_runs(weight_FH.device):
        from widenet.kernels.triton.gather_sum import gather_sum as launched

        return launched(batch, weight_FH)
    return _bag_sum(batch, weight_FH)


def gather_sums(
    batch: SparseBatch, shards: Sequence[Tensor | None], columns: int, num_threads: int
) -> Tensor:
    """Return the sums of the rows of each shard of a weight on a CPU, float32 [S, E, H].

    Args:
        batch: E examples.
        shards: The rows of each of S shards, [R, H]; None: of another process, with sums of zero.
        columns: H.
        num_threads: Number of threads.
    """
    # NumPy's zeros take no memory until they are written: those of shards elsewhere never are.
    sum_SEH = torch.from_numpy(np.zeros((len(shards), len(batch.indptr) - 1, columns), np.float32))
    if triton_runs(sum_SEH.device) or not library_runs(sum_SEH.device):
        for own_EH, part, weight_RH in zip(sum_SEH, split(batch, len(shards)), shards, strict=True):
            if weight_RH is not None:
                own_EH.copy_(gather_sum(part, weight_RH))
        return sum_SEH
    check_dtypes(float32=(*shards, batch.values), int64=[batch.indptr])
    is_short = batch.indices.dtype == torch.int32
    entries = batch.indptr, batch.indices if is_short else batch.indices.long(), batch.values
    bags = packed(
        packed(*shards), len(shards), columns, *entries, len(batch.indptr) - 1, int(is_short), sum_SEH
    )
    call("gather", bags, num_threads)
    return sum_SEH


@dataclass(frozen=True)
class Touched:
    """The weight rows that a batch touches, and the batch's entries sorted by row.

    Attributes:
        features_U: The rows, int64 [U], ascending.
        indptr: int64 [U + 1]; row u has the entries indptr[u] to indptr[u + 1] - 1.
        examples_Z: Example of every entry, int64.
        values_Z: Value of every entry, float32; None: all ones.
    """

    features_U: Tensor
    indptr: Tensor
    examples_Z: Tensor
    values_Z: Tensor | None

    @classmethod
    def of(cls, batch: SparseBatch) -> "Touched":
        """Return the rows that a batch touches."""
        return _by_feature(batch.indices, batch.example_of_entry(), batch.values)

    @classmethod
    def of_shards(cls, batches: Sequence[SparseBatch], num_shards: int) -> "Touched":
        """Return the rows that batches of `targets.joined` touch, whose sums lie one after another.

        Each has its examples once for every shard; all entries of an example count as those of one.
        """
        own, sizes = stacked(batches), [batch.num_examples // num_shards for batch in batches]
        numbers = [sum(sizes[:place]) + torch.arange(size) for place, size in enumerate(sizes)]
        example_of = torch.cat([numbers_E.repeat(num_shards) for numbers_E in numbers])
        return _by_feature(own.indices, example_of[own.example_of_entry()], own.values)

    def by(self, gradient_EH: Tensor) -> "RowGradient":
        """Return the gradient to the rows from the gradient to the sums, float32 [E, H]."""
        return RowGradient(self.features_U, self.indptr, self.examples_Z, self.values_Z, gradient_EH)


@dataclass(frozen=True)
class RowGradient(Touched):
    """The gradient of `gather_sum` to the rows that a batch touches; computed by `rows`, in parts if needed.

    Attributes:
        gradient_EH: Gradient to the sums, float32 [E, H].
    """

    gradient_EH: Tensor

    @classmethod
    def of_rows(cls, features_U: Tensor, gradient_UH: Tensor) -> "RowGradient":
        """Return a gradient from its rows float32 [U, H], in ascending order of features."""
        places = torch.arange(len(features_U) + 1, device=features_U.device)
        return cls(features_U, places, places[:-1], None, gradient_UH)

    def plus(self, other: "RowGradient") -> "RowGradient":
        """Return the sum of two gradients over the rows of both."""
        both = self, other
        features_Z = torch.cat([torch.repeat_interleave(own.features_U, own.indptr.diff()) for own in both])
        examples_Z = torch.cat([self.examples_Z, other.examples_Z + len(self.gradient_EH)])
        ones = [torch.ones(len(own.examples_Z), device=features_Z.device) for own in both]
        parts = [one if own.values_Z is None else own.values_Z for own, one in zip(both, ones, strict=True)]
        return _by_feature(features_Z, examples_Z, torch.cat(parts)).by(
            torch.cat([self.gradient_EH, other.gradient_EH])
        )

    def __len__(self) -> int:
        """Number of touched rows."""
        return len(self.features_U)

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return the gradients of the touched rows start to stop - 1, float32 [stop - start, H]."""
        stop = len(self) if stop is None else stop
        if start == stop:
            return self.gradient_EH.new_zeros(0, self.gradient_EH.shape[1])
        indptr = self.indptr[start : stop + 1]
        is_whole = stop - start == len(self)
        first, last = (0, len(self.examples_Z)) if is_whole else indptr[:: stop - start].tolist()
        values_Z = None if self.values_Z is None else self.values_Z[first:last]
        return _bag_sum(SparseBatch(indptr - first, self.examples_Z[first:last], values_Z), self.gradient_EH)


def _by_feature(features_Z: Tensor, examples_Z: Tensor, values_Z: Tensor | None) -> Touched:
    features_U, indptr, order_Z = grouped(features_Z)
    values_Z = None if values_Z is None else values_Z[order_Z]
    return Touched(features_U, indptr, examples_Z[order_Z], values_Z)


def _bag_sum(batch: SparseBatch, rows: Tensor) -> Tensor:
    """Return `gather_sum` where Triton does not compute it."""
    if library_runs(rows.device) and rows.dtype == torch.float32:
        batch = SparseBatch(batch.indptr.contiguous(), batch.indices.contiguous(), batch.values)
        return gather_sums(batch, [rows.contiguous()], rows.shape[1], 1)[0]
    if batch.num_entries == 0:
        return rows.new_zeros(batch.num_examples, rows.shape[1])
    offsets = batch.indptr.to(batch.indices.dtype)
    return torch.nn.functional.embedding_bag(
        batch.indices, rows, offsets, mode="sum", per_sample_weights=batch.values, include_last_offset=True
    )
