"""Vectors of attributes that the rows of a wide weight contain.

Row j of such a weight is w_j + sum of x_ja u_a: a vector of its own, and the vectors of its attributes times
their values. The weight holds these sums, so whatever reads it needs to know nothing of attributes. With G
the gradient to the rows, a step moves w by the optimizer's step for G, and u by its step for X^T G. The sums
therefore move by the first step, and then by X times the change of u.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient, Touched, gather_sum
from widenet.model.weight import WHOLE, TrunkWeight, WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import Shards, as_slice, blocks
from widenet.sparse import SparseBatch


@dataclass
class Description:
    """The attributes of a wide weight's rows, and in a step the gradient to the vectors of attributes.

    Attributes:
        weight: The weight.
        vectors: A vector for each attribute, [A, H].
        attributes: The attributes of the rows of each shard of this process, over A attributes.
        touched: The attributes of tiles, by shard and start and stop.
        totals: By shard, the gradient from its rows so far, float32 [A, H].
        before: The vectors before the step, once the gradient is known.
    """

    weight: WideWeight
    vectors: TrunkWeight
    attributes: Mapping[int, SparseBatch]
    touched: dict[tuple[int, int, int], Touched] = field(default_factory=dict)
    totals: dict[int, Tensor] = field(default_factory=dict)
    before: Tensor | None = None

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

    def add(self, shard: int, start: int, stop: int, gradient_TH: Tensor) -> None:
        """Add the gradient to the rows [start, stop) of a shard, unless all have been added."""
        if self.before is None:
            place = shard, start, stop
            if place not in self.touched:
                self.touched[place] = Touched.of(_within(self.attributes[shard], start, stop))
            self._add(shard, self.touched[place].by(gradient_TH))

    def finish(self, rows: Mapping[int, RowGradient], exchange: Exchange, where: str, share: float) -> None:
        """Give the vectors their gradient, unless they have it; all processes must call this.

        Args:
            rows: Gradients to touched rows that `add` has not taken, by shard, or of `WHOLE`.
            exchange: Adds across shards.
            where: Name of the weight in messages about failed exchanges.
            share: Factor on the gradients; see `Network.share_of_gradient`.
        """
        if self.before is not None:
            return
        for shard, touched in rows.items():
            self._add_rows([*self.weight.parts] if shard == WHOLE else [shard], touched)
        vectors_AH = self.vectors.tensor
        self.before = before_AH = vectors_AH.detach().clone()
        terms = exchange.each(lambda shard: self.totals.pop(shard, torch.zeros_like(before_AH)))
        vectors_AH.grad = exchange.sum(terms, where).to(vectors_AH.dtype) * share

    def spread(self, exchange: Exchange) -> None:
        """Add the change of the vectors to the rows, after the step."""
        assert self.before is not None
        change_AH, self.before = self.vectors.tensor.detach() - self.before, None

        def of_shard(shard: int) -> None:
            start = 0
            for block_RH in self.weight.parts[shard].blocks(updates=True):
                stop = start + len(block_RH)
                block_RH.add_(gather_sum(_within(self.attributes[shard], start, stop), change_AH))
                start = stop

        exchange.each(of_shard)

    def _add_rows(self, held: Sequence[int], rows: RowGradient) -> None:
        """Add the gradient to the touched rows of some shards, which follow one another as in `WHOLE`."""
        features_U, room = rows.features_U, self.weight.shards.room
        for place, shard in enumerate(held):
            edges = torch.tensor([place * room, (place + 1) * room], device=features_U.device)
            low, high = torch.searchsorted(features_U, edges).tolist()
            for start, stop in blocks(high - low, rows.gradient_EH.shape[1], features_U.device.type):
                own_U = features_U[low + start : low + stop] - place * room
                attributes = self.attributes[shard].take(own_U)
                self._add(shard, Touched.of(attributes).by(rows.rows(low + start, low + stop)))

    def _add(self, shard: int, gradient: RowGradient) -> None:
        if shard not in self.totals:
            self.totals[shard] = torch.zeros_like(self.vectors.tensor)
        self.totals[shard].index_add_(0, gradient.features_U, gradient.rows())


def _rows_of(attributes: SparseBatch, shards: Shards, shard: int) -> SparseBatch:
    """Return the attributes of a shard's rows; rows beyond those of `attributes` have none."""
    units = torch.arange(shards.width)[as_slice(shards.units(shard))]
    chosen = attributes.take(units[units < attributes.num_examples])
    indptr = torch.cat([chosen.indptr, chosen.indptr[-1:].expand(len(units) - chosen.num_examples)])
    return SparseBatch(indptr, chosen.indices, chosen.values)


def _within(batch: SparseBatch, start: int, stop: int) -> SparseBatch:
    """Return the rows [start, stop) of a batch."""
    indptr = batch.indptr[start : stop + 1]
    first, last = int(indptr[0]), int(indptr[-1])
    values = None if batch.values is None else batch.values[first:last]
    return SparseBatch(indptr - first, batch.indices[first:last], values)
