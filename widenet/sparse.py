"""SparseBatch: sparse rows in memory, in compressed sparse row form (CSR)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from widenet.arguments import typed
from widenet.devices import sent
from widenet.errors import DataError


@dataclass(frozen=True, slots=True)
class SparseBatch:
    """E examples of a sparse field, in compressed sparse row form.

    The constructor checks nothing; call `checked` on data from outside.

    Attributes:
        indptr: int64 [E + 1]; example e owns the entries indptr[e] to indptr[e + 1].
        indices: int32 or int64 [Z], each in [0, width), in any order.
        values: float32 [Z]; None if every value is 1.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor | None = None

    @classmethod
    @typed
    def from_lists(
        cls, rows: Sequence[Sequence[int]], values: Sequence[Sequence[float]] | None = None
    ) -> "SparseBatch":
        """Make a batch from one list of indices for each example, and one list of values if there are any."""
        return from_rows(rows, values)

    @property
    def num_examples(self) -> int:
        """Number of examples, E."""
        return len(self.indptr) - 1

    @property
    def num_entries(self) -> int:
        """Number of stored entries, Z."""
        return len(self.indices)

    def counts(self) -> Tensor:
        """Number of stored entries of each example, int64 [E]."""
        return self.indptr.diff()

    def example_of_entry(self) -> Tensor:
        """The example that owns each entry, int64 [Z]."""
        if self.indptr.device.type == "cpu":  # torch takes ten times as long for a small batch
            counts_E = np.diff(self.indptr.numpy())
            return torch.from_numpy(np.repeat(np.arange(len(counts_E)), counts_E))
        examples = torch.arange(self.num_examples, device=self.indptr.device)
        return torch.repeat_interleave(examples, self.counts(), output_size=self.num_entries)

    def values_or_ones(self) -> Tensor:
        """Values of all entries, float32 [Z]; ones if none are stored."""
        if self.values is not None:
            return self.values
        return torch.ones(self.num_entries, device=self.indices.device)

    def with_values(self, values: Tensor | None) -> "SparseBatch":
        """Return the batch with other values."""
        return SparseBatch(self.indptr, self.indices, values)

    def keep(self, kept: Tensor) -> "SparseBatch":
        """Return the batch with only the entries where `kept`, bool [Z], is true."""
        values = None if self.values is None else self.values[kept]
        return SparseBatch(indptr_of(kept)[self.indptr], self.indices[kept], values)

    def take(self, rows: Tensor) -> "SparseBatch":
        """Return the batch of some of the examples, int64 [R], in this order."""
        counts_R = self.counts()[rows]
        indptr = indptr_of(counts_R)
        shift_R = self.indptr[:-1][rows] - indptr[:-1]
        entries_Z = torch.arange(int(indptr[-1]), device=self.indptr.device)
        entries_Z += torch.repeat_interleave(shift_R, counts_R)
        values = None if self.values is None else self.values[entries_Z]
        return SparseBatch(indptr, self.indices[entries_Z], values)

    def distinct(self) -> "SparseBatch":
        """Return the batch with each index of an example once, in ascending order, without values."""
        keys_Z = torch.unique(self._keys())
        counts = torch.bincount(keys_Z >> 32, minlength=self.num_examples)
        return SparseBatch(indptr_of(counts), keys_Z & (2**32 - 1))

    def distinct_in_order(self) -> "SparseBatch":
        """Return the batch with each index of an example only where it occurs last."""
        keys_Z, order_Z = torch.sort(self._keys(), stable=True)
        is_last_Z = torch.ones_like(keys_Z, dtype=torch.bool)
        is_last_Z[:-1] = keys_Z[1:] != keys_Z[:-1]
        kept_Z = torch.empty_like(is_last_Z)
        kept_Z[order_Z] = is_last_Z
        return self.keep(kept_Z)

    def _keys(self) -> Tensor:
        """Return example and index of each entry as one integer, int64 [Z].

        It fits, as indices have 32 bits, and examples fewer.
        """
        return (self.example_of_entry() << 32) + self.indices.long()

    def to(self, device: torch.device | str) -> "SparseBatch":
        """Return the batch on another device."""
        values = None if self.values is None else sent(self.values, device)
        return SparseBatch(sent(self.indptr, device), sent(self.indices, device), values)

    def checked(self, width: int, name: str = "batch") -> "SparseBatch":
        """Return this batch if it is valid; otherwise raise DataError that names the first broken rule."""
        require, indptr, indices = partial(DataError.require, place=name), self.indptr, self.indices
        is_right = indptr.dtype == torch.int64 and indptr.dim() == 1 and len(indptr) > 0
        require(is_right, f"indptr must be int64 [examples + 1]; got {indptr.dtype} {[*indptr.shape]}")
        is_right = indices.dtype in (torch.int32, torch.int64) and indices.dim() == 1
        require(is_right, f"indices must be int32 or int64 [entries]; got {indices.dtype} {[*indices.shape]}")
        rises = indptr[0] == 0 and indptr[-1] == self.num_entries and not (indptr.diff() < 0).any()
        require(rises, f"indptr must rise from 0 to the number of entries, {self.num_entries}")
        low, high = map(int, indices.aminmax()) if self.num_entries else (0, width - 1)
        require(low >= 0 and high < width, f"indices must lie in [0, {width}); got {low} to {high}")
        if (values := self.values) is not None:
            is_right = values.shape == indices.shape and values.dtype == torch.float32
            rule = f"values must be float32 [{self.num_entries}]; got {values.dtype} {[*values.shape]}"
            require(is_right, rule)
            require(values.isfinite().all(), "values must be finite numbers")
        return self


def from_rows(rows: Sequence[Sequence[int]], values: Sequence[Sequence[float]] | None = None) -> SparseBatch:
    """As `SparseBatch.from_lists`, of lists that need no check."""
    counts = torch.tensor([*map(len, rows)], dtype=torch.int64)
    indices = np.array([*chain.from_iterable(rows)], dtype=np.int64)
    numbers = None if values is None else torch.tensor([*chain.from_iterable(values)], dtype=torch.float32)
    return SparseBatch(indptr_of(counts), torch.from_numpy(indices), numbers)


def indptr_of(counts: Tensor) -> Tensor:
    """Return where the entries of each row begin, int64 [N + 1], from their counts, integers or bool [N]."""
    indptr = torch.zeros(len(counts) + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def stacked(batches: Sequence[SparseBatch]) -> SparseBatch:
    """Concatenate the examples of several batches."""
    if len(batches) == 1:
        return batches[0]
    indptr = indptr_of(torch.cat([batch.counts() for batch in batches]))
    has_values = any(batch.values is not None for batch in batches)
    values = torch.cat([batch.values_or_ones() for batch in batches]) if has_values else None
    return SparseBatch(indptr, torch.cat([batch.indices for batch in batches]), values)
