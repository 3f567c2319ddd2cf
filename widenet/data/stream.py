"""Batches of a dataset in a reproducible order, prepared ahead of use in a thread."""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from widenet import randomness
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.devices import keep_to_one_thread
from widenet.errors import DataError, OptionError
from widenet.plan.layout import BATCHES_AHEAD, steps_per_epoch
from widenet.sparse import SparseBatch

T = TypeVar("T")
_ROWS_PER_COUNT = 65_536


@dataclass(frozen=True)
class Batch:
    """A batch of E examples for a network.

    Attributes:
        epoch: Epoch of the batch.
        step: Position of the batch within the epoch.
        rows: The examples' rows in the dataset, int64 [E].
        fields: By name, a SparseBatch or a float32 Tensor [E, width].
        weights: Example weights, float32 [E]; None if all are 1.
    """

    epoch: int
    step: int
    rows: np.ndarray
    fields: dict[str, SparseBatch | Tensor]
    weights: Tensor | None

    @property
    def num_examples(self) -> int:
        """Number of examples, E."""
        return len(self.rows)


class Stream:
    """The batches of a dataset, epoch by epoch; any batch can be read without those before it.

    Args:
        dataset: The examples.
        fields: Names of the fields in each batch.
        batch_size: Number of examples, at least 1; the last batch of an epoch may be smaller.
        seed: Seed of the random orders.
        shuffle: Whether each epoch has a random order of its own; otherwise the dataset's order is used.
        part: The part of the sparse fields to read.
        skip_empty: Leave out examples without entries of this field in `part`; if there are any, this takes 4
            bytes for each of the others.
        only: Rows of the only examples to read, int64; None: all. Not with `skip_empty`.
        own: By dense field, the examples of a batch of so many that are read; the others are zeros. A field
            that is not named is read whole.

    Raises:
        DataError: No example is left, or a field is unknown.
        FitError: A field does not have the part.
        OptionError: `batch_size` is below 1.
    """

    def __init__(
        self,
        dataset: Dataset,
        fields: Sequence[str],
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        part: Part = "train",
        skip_empty: str | None = None,
        only: np.ndarray | None = None,
        own: Mapping[str, Callable[[int], slice]] | None = None,
    ) -> None:
        assert only is None or skip_empty is None
        OptionError.require(batch_size >= 1, f"batch_size must be at least 1; got {batch_size}.")
        self.dataset = dataset
        self.fields = tuple(fields)
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.part: Part = part
        self._own = own or {}
        self._eligible = only if skip_empty is None else _rows_with_entries(dataset, skip_empty, part)
        self.num_examples = dataset.num_examples if self._eligible is None else len(self._eligible)
        DataError.require(
            self.num_examples,
            f"{dataset.path}: no example has entries in the {part} part of {skip_empty or 'any field'}:"
            " nothing to read.",
        )
        dataset_rows = np.zeros(0, dtype=np.int64)
        for name in self.fields:
            self._read(name, dataset_rows)

    @property
    def steps_per_epoch(self) -> int:
        """See `plan.layout.steps_per_epoch`."""
        return steps_per_epoch(self.num_examples, self.batch_size)

    def rows(self, epoch: int, step: int) -> np.ndarray:
        """The dataset rows of one batch, int64 [E]."""
        start = step * self.batch_size
        positions = np.arange(start, min(start + self.batch_size, self.num_examples))
        if self.shuffle:
            positions = randomness.shuffled(self.seed, "examples", epoch, self.num_examples, positions)
        return positions if self._eligible is None else self._eligible[positions].astype(np.int64)

    def batches(self, epoch: int, start_step: int = 0) -> Generator[Batch, None, None]:
        """Yield the batches of an epoch from `start_step` on, read ahead."""
        return ahead(lambda step: self.batch(epoch, step), range(start_step, self.steps_per_epoch))

    def batch(self, epoch: int, step: int) -> Batch:
        """Read one batch into the host's memory."""
        rows = self.rows(epoch, step)
        fields = {name: self._read(name, rows) for name in self.fields}
        return Batch(epoch, step, rows, fields, self.dataset.weights(rows))

    def _read(self, name: str, rows: np.ndarray) -> SparseBatch | Tensor:
        known = self.dataset.field(name)
        if name in self._own:
            own = self._own[name](len(rows))
            # NumPy's zeros take no memory where nobody writes or reads.
            numbers = np.zeros((len(rows), known.width), dtype=np.float32)
            numbers[own] = self.dataset.dense(name, rows[own]).numpy()
            return torch.from_numpy(numbers)
        if known.kind == "dense":
            return self.dataset.dense(name, rows)
        return self.dataset.sparse(name, rows, self.part)


def ahead(make: Callable[[int], T], steps: range) -> Generator[T, None, None]:
    """Yield `make(step)` for every step; a thread works ahead, and ends with the iterator."""
    with ThreadPoolExecutor(1, "widenet-batches", initializer=keep_to_one_thread) as thread:
        pending: deque[Future[T]] = deque()
        try:
            for step in steps:
                pending.append(thread.submit(make, step))
                if len(pending) == BATCHES_AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            thread.shutdown(cancel_futures=True)


def _rows_with_entries(dataset: Dataset, field: str, part: Part) -> np.ndarray | None:
    """The rows that have entries, uint32; None if all have."""
    kept = []
    for start in range(0, dataset.num_examples, _ROWS_PER_COUNT):
        counts = dataset.entry_counts(field, slice(start, start + _ROWS_PER_COUNT), part)
        kept.append((start + np.flatnonzero(counts)).astype(np.uint32))
    rows = np.concatenate(kept) if kept else np.zeros(0, dtype=np.uint32)
    return None if len(rows) == dataset.num_examples else rows
