"""A small piece of the latest part of Gowalla, on which an idea is tried in a minute."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from widenet import Dataset
from widenet.metrics.ranking import Metrics, RankingMetrics
from widenet.sparse import SparseBatch

Logits = Callable[[Tensor], Tensor]
"""Returns the logits of all items for users, float32 [E, items], from their rows."""

_K = 20
_BLOCK = 256


@dataclass(frozen=True)
class Piece:
    """The first users of a dataset, with their frequent items.

    Attributes:
        histories: The training items of each user.
        heldout: The items to find; none for a user without training items.
        width: Number of items.
    """

    histories: SparseBatch
    heldout: SparseBatch
    width: int

    @classmethod
    def of(cls, dataset: Dataset, users: int, least: int) -> "Piece":
        """Take the first `users`, and the items that they have at least `least` times in training."""
        rows = np.arange(min(users, dataset.num_examples))
        train, heldout = (dataset.sparse("items", rows, part) for part in ("train", "heldout"))
        counts = torch.bincount(train.indices, minlength=dataset.field("items").width)
        kept = counts >= least
        numbers = kept.cumsum(0) - 1

        def within(batch: SparseBatch) -> SparseBatch:
            few = batch.keep(kept[batch.indices.long()])
            return SparseBatch(few.indptr, numbers[few.indices.long()], None)

        histories, heldout = within(train), within(heldout)
        known = (histories.counts() > 0)[heldout.example_of_entry()]
        return cls(histories, heldout.keep(known), int(kept.sum()))

    @cached_property
    def counts(self) -> Tensor:
        """Training interactions of each item, int64 [items]."""
        return torch.bincount(self.histories.indices, minlength=self.width)

    @cached_property
    def matrix(self) -> csr_matrix:
        """The histories as ones, float64 [users, items]."""
        entries = np.ones(self.histories.num_entries)
        shape = self.histories.num_examples, self.width
        return csr_matrix((entries, self.histories.indices.numpy(), self.histories.indptr.numpy()), shape)

    def metrics(self, logits: Logits) -> Metrics:
        """Return the metrics of all users with items to find, and those of each user.

        All items are ranked but those of the user's history.
        """
        metrics = RankingMetrics([_K], self.counts.numpy())
        users = torch.nonzero(self.heldout.counts())[:, 0]
        for start in range(0, len(users), _BLOCK):
            rows = users[start : start + _BLOCK]
            history, truth = self.histories.take(rows), self.heldout.take(rows)
            logits_EN = logits(rows)
            logits_EN[history.example_of_entry(), history.indices] = -torch.inf
            top = logits_EN.topk(min(_K, self.width)).indices
            metrics.add(top.numpy(), truth.indptr.numpy(), truth.indices.numpy(), rows.numpy())
        return metrics.result()
