"""Vectors of attributes that the rows of a wide weight contain.

Row j of such a weight is w_j + sum of x_ja u_a: a vector of its own, and the vectors of its attributes times
their values. The weight holds these sums, so whatever reads it needs to know nothing of attributes. With G
the gradient to the rows, a step moves w by the optimizer's step for G, and u by its step for X^T G. The sums
therefore move by the first step, and then by X times the change of u.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient, Touched, gather_sum
from widenet.model.storage import blocks as blocks_of
from widenet.model.weight import WHOLE, TrunkWeight, WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.streaming import block_rows
from widenet.plan.tiles import Shards, as_slice, blocks
from widenet.sparse import SparseBatch


@dataclass
class Description:
    """The attributes of a wide weight's rows, for its training.

    Attributes:
        weight: The weight.
        vectors: A vector for each attribute, [A, H].
        attributes: The attributes of the rows of each shard of this process, over A attributes.
        touched: What `add` needs of tiles, by shard and start and stop.
    """

    weight: WideWeight
    vectors: TrunkWeight
    attributes: Mapping[int, SparseBatch]
    touched: dict[tuple[int, int, int], Touched] = field(default_factory=dict)

    @classmethod
    def of(cls, weight: WideWeight, vectors: TrunkWeight, attributes: SparseBatch) -> "Description":
        """Return the description of a weight.

        Args:
            weight: The weight, of at least as many rows as `attributes`.
            vectors: The vectors of the attributes.
            attributes: The attributes of the first rows; others have none.
        """
        parts = {shard: _rows_of(attributes, weight.shards, shard) for shard in weight.parts}
        return cls(weight, vectors, {shard: part.to(weight.device) for shard, part in parts.items()})

    def tile(self, shard: int, start: int, stop: int) -> Touched:
        """Return the attributes that the rows [start, stop) of a shard have, with these rows."""
        place = shard, start, stop
        if place not in self.touched:
            self.touched[place] = Touched.of(_within(self.attributes[shard], start, stop))
        return self.touched[place]

    def spread(self, shard: int, change_AH: Tensor) -> None:
        """Add the change of the vectors of attributes to the rows of a shard."""
        attributes, start = self.attributes[shard], 0
        for block_RH in self.weight.parts[shard].blocks(updates=True):
            stop = start + len(block_RH)
            block_RH.add_(gather_sum(_within(attributes, start, stop), change_AH))
            start = stop


@dataclass
class DescriptionStep:
    """The gradient to the vectors of attributes in a step, collected from those to the rows.

    Attributes:
        description: The description.
        share: Factor on the gradients; see `Network.share_of_gradient`.
        totals: By shard, the gradient from its rows, float32 [A, H].
        seen: Shards and starts of tiles that have been added.
        before: The vectors before the step, once the gradient is known.
    """

    description: Description
    share: float
    totals: dict[int, Tensor] = field(default_factory=dict)
    seen: set[tuple[int, int]] = field(default_factory=set)
    before: Tensor | None = None

    def add(self, shard: int, start: int, stop: int, gradient_TH: Tensor) -> None:
        """Add the gradient to the rows [start, stop) of a shard, unless it was added before."""
        if (shard, start) in self.seen:
            return
        self.seen.add((shard, start))
        self._add(shard, self.description.tile(shard, start, stop).by(gradient_TH))

    def add_rows(self, shard: int, rows: RowGradient) -> None:
        """Add the gradient to the touched rows of a shard, or of `WHOLE`, unless it was added before."""
        for own, features_U, low in self._by_shard(shard, rows):
            if (own, 0) in self.seen:
                continue
            self.seen.add((own, 0))
            for start, stop in blocks(len(features_U), rows.gradient_EH.shape[1], features_U.device.type):
                attributes = self.description.attributes[own].take(features_U[start:stop])
                self._add(own, Touched.of(attributes).by(rows.rows(low + start, low + stop)))

    def _by_shard(self, shard: int, rows: RowGradient) -> Iterator[tuple[int, Tensor, int]]:
        """Yield each shard with its touched rows, and the place of the first one among all of them."""
        if shard != WHOLE:
            yield shard, rows.features_U, 0
            return
        weight = self.description.weight
        for place, own in enumerate(weight.parts):
            edges = torch.tensor([place, place + 1], device=rows.features_U.device) * weight.shards.room
            low, high = torch.searchsorted(rows.features_U, edges).tolist()
            yield own, rows.features_U[low:high] - place * weight.shards.room, low

    def _add(self, shard: int, gradient: RowGradient) -> None:
        vectors_AH = self.description.vectors.tensor.detach()
        if shard not in self.totals:
            self.totals[shard] = torch.zeros_like(vectors_AH)
        self.totals[shard].index_add_(0, gradient.features_U, gradient.rows())

    def finish(self, exchange: Exchange, where: str) -> None:
        """Give the vectors their gradient, once all of it was added; all processes must call this."""
        if self.before is not None:
            return
        vectors_AH = self.description.vectors.tensor
        self.before = before_AH = vectors_AH.detach().clone()
        terms = exchange.each(lambda shard: self.totals.pop(shard, torch.zeros_like(before_AH)))
        vectors_AH.grad = exchange.sum(terms, where).to(vectors_AH.dtype) * self.share

    def spread(self, exchange: Exchange) -> None:
        """Add the change of the vectors to the rows, after the step."""
        assert self.before is not None
        change_AH = self.description.vectors.tensor.detach() - self.before
        exchange.each(lambda shard: self.description.spread(shard, change_AH))


def last_known(counts: np.ndarray) -> int:
    """Return the number of features up to the last one with training interactions."""
    known = np.flatnonzero(counts)
    return int(known[-1]) + 1 if len(known) else 0


def clear_unknown(weight: WideWeight, num_known: int) -> None:
    """Set the rows after the last known feature to zeros: they have no vector of their own."""
    known = Shards(num_known, weight.shards.count)
    for shard, part in weight.parts.items():
        rows = part.weight[known.size(shard) :]
        for block in blocks_of(rows, block_rows(rows[:1].nbytes), writes=True):
            block.zero_()


def _rows_of(attributes: SparseBatch, shards: Shards, shard: int) -> SparseBatch:
    """Return the attributes of a shard's rows; rows beyond those of `attributes` have none."""
    units = torch.arange(shards.width)[as_slice(shards.units(shard))]
    num_rows = attributes.num_examples
    chosen = attributes.take(units[units < num_rows])
    missing = int((units >= num_rows).sum())
    indptr = torch.cat([chosen.indptr, chosen.indptr[-1:].expand(missing)])
    return SparseBatch(indptr, chosen.indices, chosen.values)


def _within(batch: SparseBatch, start: int, stop: int) -> SparseBatch:
    """Return the rows [start, stop) of a batch."""
    indptr = batch.indptr[start : stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    values = None if batch.values is None else batch.values[first:last]
    return SparseBatch(indptr - first, batch.indices[first:last], values)
