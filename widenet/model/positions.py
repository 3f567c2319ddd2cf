"""The positions of a batch's sequences, grouped by time."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.plan.tiles import FILLED_POSITIONS
from widenet.sparse import SparseBatch, indptr_of

_PREDICTED_SEQUENCES = 8
"""Sequences that are multiplied together outside training, where no number may depend on how many there are.

Zeros fill up the last ones.
"""


@dataclass(frozen=True)
class Positions:
    """N positions of E sequences: the first positions of all sequences, then the second ones, and so on.

    Within a time the longest sequence comes first, so sequences that continue come before those that end.

    With `together`, sequences of about one length have as many positions as the longest of them; these
    further positions have no feature, and nothing but further positions reads them.

    Attributes:
        sizes: Number of sequences with a position at each time, descending.
        features: Features of the positions, a batch of N examples with at most one feature each.
        examples_N: Sequence of each position, int64.
        ends_E: Newest position of each sequence, int64; N for an empty one.
        asking_M: Positions that have a next feature, int64, ascending.
        next: These next features, a batch of M examples.
        groups: Numbers of sequences and of positions of each, where sequences of about one length lie side
            by side, filled up to this length.
        places_N: Place of each position there; positions without a feature share the one after all others.
    """

    sizes: list[int]
    features: SparseBatch
    examples_N: Tensor
    ends_E: Tensor
    asking_M: Tensor
    next: SparseBatch
    groups: list[tuple[int, int]]
    places_N: Tensor

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
        groups, firsts_E = _groups(lengths_E[order_E], None if together == 1 else _PREDICTED_SEQUENCES)
        places_N = torch.where(
            within_N,
            firsts_E[ranks_E[examples_N]] + times_N,
            sum(count * length for count, length in groups),
        )
        return cls(
            sizes=torch.bincount(times_N).tolist(),
            features=SparseBatch(indptr_of(within_N), batch.indices[entries_N[within_N]]),
            examples_N=examples_N,
            ends_E=ends_E,
            asking_M=asking_M,
            next=SparseBatch(
                torch.arange(len(asking_M) + 1, device=device), batch.indices[entries_N[asking_M] + 1]
            ),
            groups=groups,
            places_N=places_N,
        )


def _groups(lengths_E: Tensor, most: int | None) -> tuple[list[tuple[int, int]], Tensor]:
    """Return groups of neighbours of about one length, and the place of each sequence's first position.

    Args:
        lengths_E: Numbers of positions of the sequences, descending.
        most: Size of every group, where zeros fill up; None: all of about one length are a group.
    """
    filled_E = -(-lengths_E // FILLED_POSITIONS) * FILLED_POSITIONS
    lengths_G, group_E, counts_G = torch.unique_consecutive(filled_E, return_inverse=True, return_counts=True)
    filled_G = counts_G if most is None else -(-counts_G // most) * most
    groups = [
        (most or count, length)
        for length, count in zip(lengths_G.tolist(), filled_G.tolist(), strict=True)
        for _ in range(0, count, most or count)
        if length
    ]
    ranks_E = torch.arange(len(lengths_E), device=lengths_E.device) - (counts_G.cumsum(0) - counts_G)[group_E]
    firsts_G = (lengths_G * filled_G).cumsum(0) - lengths_G * filled_G
    return groups, firsts_G[group_E] + ranks_E * filled_E
