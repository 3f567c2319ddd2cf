"""The positions of a batch's sequences, grouped by time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.sparse import SparseBatch, indptr_of


@dataclass(frozen=True)
class Positions:
    """N positions of E sequences: the first positions of all sequences, then the second ones, and so on.

    Within a time the longest sequence comes first, so sequences that continue come before those that end.

    With `together`, sequences of about one length have as many positions as the longest of them; these
    further positions have no feature, and nothing but further positions reads them.

    Attributes:
        sizes: Number of sequences with a position at each time, descending.
        starts: First position of each time, and at last N; int32.
        times_N: Time of each position, int32.
        features: Features of the positions, a batch of N examples with at most one feature each.
        examples_N: Sequence of each position, int64.
        ends_E: Newest position of each sequence, int64; N for an empty one.
        asking_M: Positions that have a next feature, int64, ascending.
        next: These next features, a batch of M examples.
    """

    sizes: list[int]
    starts: Tensor
    times_N: Tensor
    features: SparseBatch
    examples_N: Tensor
    ends_E: Tensor
    asking_M: Tensor
    next: SparseBatch

    @classmethod
    def of(cls, batch: SparseBatch, newest: int, ends_ask: bool, together: int = 1) -> "Positions":
        """Return the newest positions of sequences.

        Args:
            batch: The sequences.
            newest: Largest number of positions of a sequence.
            ends_ask: Whether the last feature is only a target, the next of the position before it.
            together: Every number of `sizes` is a multiple of this, if the number of sequences is one.
        """
        num, device = batch.num_examples, batch.indptr.device
        stops_E = (batch.counts() - int(ends_ask)).clamp_min(0)
        lengths_E = stops_E.clamp_max(newest)
        ranks_E = torch.empty_like(lengths_E)
        order_E = torch.argsort(lengths_E, descending=True, stable=True)
        ranks_E[order_E] = torch.arange(num, device=device)
        spans_E = lengths_E[order_E[ranks_E // together * together]]
        owners_N = torch.repeat_interleave(torch.arange(num, device=device), spans_E)
        times_N = torch.arange(len(owners_N), device=device) - (spans_E.cumsum(0) - spans_E)[owners_N]
        order_N = torch.argsort(times_N * num + ranks_E[owners_N])
        examples_N, times_N = owners_N[order_N], times_N[order_N]
        within_N = times_N < lengths_E[examples_N]
        entries_N = (batch.indptr[:-1] + stops_E - lengths_E)[examples_N] + times_N
        ends_E = torch.full_like(lengths_E, len(order_N))
        at_end_N = times_N == lengths_E[examples_N] - 1
        ends_E[examples_N[at_end_N]] = at_end_N.nonzero()[:, 0]
        asking_M = (within_N & (entries_N + 1 < batch.indptr[1:][examples_N])).nonzero()[:, 0]
        sizes = torch.bincount(times_N)
        return cls(
            sizes=sizes.tolist(),
            starts=indptr_of(sizes).int(),
            times_N=times_N.int(),
            features=SparseBatch(indptr_of(within_N), batch.indices[entries_N[within_N]]),
            examples_N=examples_N,
            ends_E=ends_E,
            asking_M=asking_M,
            next=SparseBatch(
                torch.arange(len(asking_M) + 1, device=device), batch.indices[entries_N[asking_M] + 1]
            ),
        )
