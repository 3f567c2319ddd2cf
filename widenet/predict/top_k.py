"""The k best units of an output for every example of a batch, computed tile by tile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.devices import sent_together
from widenet.kernels.running_top_k import running_top_k, unpacked
from widenet.model.activations import definition
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.output_step import RowSum
from widenet.model.preparation import Values
from widenet.model.sharding import ByUnit, split
from widenet.model.sweep import in_turn
from widenet.plan.shards import as_slice
from widenet.predict.logit_tiles import Tiles
from widenet.predict.swept_shards import SweptShards, is_sweepable
from widenet.sparse import SparseBatch
from widenet.spec.activations import ROW_WISE


@dataclass(frozen=True)
class Filter:
    """Units to leave out and factors on scores, for all examples.

    Attributes:
        banned_L: Units that no one is shown, bool [L].
        weight_L: Factors on the scores, float32 [L], at least 0; a unit of weight 0 is shown to no one.
    """

    banned_L: Tensor | None = None
    weight_L: Tensor | None = None

    def to(self, device: torch.device) -> "Filter":
        """The filter on another device."""
        moved = (None if each is None else each.to(device) for each in (self.banned_L, self.weight_L))
        return Filter(*moved)

    def within(self, num_units: int, output: WideOutput) -> "Filter":
        """This filter without the units from `num_units` on, which the output reserves for new features."""
        if num_units >= output.width:
            return self
        reserved_L = torch.arange(output.width, device=output.weight.device) >= num_units
        return Filter(reserved_L if self.banned_L is None else reserved_L | self.banned_L, self.weight_L)

    def without(self, banned_L: Tensor | None) -> "Filter":
        """This filter without further units, bool [L]."""
        if banned_L is None:
            return self
        return Filter(banned_L if self.banned_L is None else banned_L | self.banned_L, self.weight_L)

    def barred(self) -> SparseBatch | None:
        """All units that no one is shown, as a batch of one example; None without a filter."""
        masks = [] if self.banned_L is None else [self.banned_L]
        masks += [] if self.weight_L is None else [self.weight_L == 0]
        if not masks:
            return None
        barred_B = torch.stack(masks).any(dim=0).nonzero()[:, 0]
        return SparseBatch(torch.tensor([0, len(barred_B)], device=barred_B.device), barred_B)


@dataclass(frozen=True)
class Only:
    """Units to choose from, for some examples of a batch.

    Attributes:
        units: The units of each example; of the others, none.
        listed_E: Whether an example has such units, bool [E].
    """

    units: SparseBatch
    listed_E: Tensor


@dataclass(frozen=True)
class Full:
    """Categories whose units are left out, for each example of a batch.

    Attributes:
        category_LM: The M categories of each unit, int64 [L, M].
        full_EC: Whether an example leaves out the units of a category, bool [E, C].
    """

    category_LM: Tensor
    full_EC: Tensor

    def to(self, device: torch.device) -> "Full":
        """The same on another device."""
        return Full(self.category_LM.to(device), self.full_EC.to(device))


def top_k(
    network: Network,
    fields: Mapping[str, Values],
    output_name: str,
    k: int,
    excluded: SparseBatch | None = None,
    allowed: Filter | None = None,
    scores: bool = True,
    factors: SparseBatch | None = None,
    only: Only | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k best units of an output for every example of a batch, best first.

    A score is an activation, times the filter's weight, times the factor. Of units with equal scores, the
    lower one comes first. An example's scores have the same bits in every batch (`predict.tiles`).

    Args:
        network: The network; all its processes must call this.
        fields: Values of the fields that the inputs read, for E examples, in the host's memory.
        output_name: Name of the output.
        k: Number of units.
        excluded: Units to leave out, example by example.
        allowed: Filter for all examples.
        scores: If False, logits may be returned instead of scores if they give the same ranking. This is much
            faster for a softmax.
        factors: Factors on the scores of some units, example by example, each unit at most once.
        only: Units to choose from, for some examples.

    Returns:
        Scores float32 [E, K] and units int64 [E, K], K = min(k, width). Missing entries are -inf and -1.
    """
    with torch.no_grad():
        tiles = Tiles.of_batch(network, fields, output_name)
        return ranked(tiles, k, excluded, allowed, scores, factors, only)


def ranked(
    tiles: Tiles,
    k: int,
    excluded: SparseBatch | None = None,
    allowed: Filter | None = None,
    scores: bool = True,
    factors: SparseBatch | None = None,
    only: Only | None = None,
    full: Sequence[Full] = (),
) -> tuple[Tensor, Tensor]:
    """As `top_k`, for tiles that are there already; without the units of `full` categories."""
    number = min(k, tiles.output.width)
    return _Ranking(tiles, number, excluded, allowed or Filter(), scores, factors, only, full).run()


class _Ranking:
    def __init__(
        self,
        tiles: Tiles,
        k: int,
        excluded: SparseBatch | None,
        allowed: Filter,
        scores: bool,
        factors: SparseBatch | None,
        only: Only | None,
        full: Sequence[Full] = (),
    ) -> None:
        self.tiles, self.output, self.k = tiles, tiles.output, k
        self.device = tiles.direct_EH.device
        self.shards, self.weight_L = tiles.shards, allowed.weight_L
        self.scores = scores
        self.by_logit = allowed.weight_L is None and factors is None and definition(tiles.activation).rising
        self.divides = tiles.activation.kind in ROW_WISE and (scores or not self.by_logit)
        self.swept: SweptShards | None = None
        if self.by_logit and only is None and not full and is_sweepable(tiles, self.divides):
            self.swept = SweptShards(tiles, k, excluded, allowed.banned_L, self.divides)
            return
        barred = allowed.barred()
        self.barred = None if barred is None else self._by_unit(barred)
        self.hidden = [self._hidden(block, excluded, factors, only, full) for block in tiles.blocks]

    def _hidden(
        self,
        block: slice,
        excluded: SparseBatch | None,
        factors: SparseBatch | None,
        only: Only | None,
        full: Sequence[Full],
    ) -> "_Hidden":
        rows = torch.arange(block.start, block.stop)

        def of_block(batch: SparseBatch | None) -> list[ByUnit] | None:
            return None if batch is None else self._by_unit(batch.to("cpu").take(rows))

        return _Hidden(
            excluded=of_block(excluded),
            factors=of_block(factors),
            only=of_block(None if only is None else only.units),
            listed_B=None if only is None else only.listed_E[block].to(self.device),
            full=[Full(each.category_LM, each.full_EC[block]) for each in full],
        )

    def _by_unit(self, batch: SparseBatch) -> list[ByUnit]:
        by_unit = [ByUnit.of(part) for part in split(batch.to("cpu"), self.shards)]
        return sent_together(by_unit, self.device)

    def run(self) -> tuple[Tensor, Tensor]:
        exchange, where = self.output.exchange, self.output.where
        total_E1 = None if self.by_logit else self.tiles.total()
        best = self._best(total_E1) if self.swept is None else self.swept.best()
        if self.divides and self.by_logit:
            total_E1 = self.tiles.summed([summed for _, summed in best])
        keys_EN = torch.cat(exchange.gather([keys_EK for keys_EK, _ in best], where), dim=1)
        ranked_EK, units_EK = unpacked(keys_EN.topk(self.k, dim=1).values)
        scores_EK = self.tiles.scores(ranked_EK, total_E1) if self.by_logit and self.scores else ranked_EK
        return scores_EK.masked_fill(units_EK < 0, -torch.inf), units_EK

    def _best(self, total_E1: Tensor | None) -> list[tuple[Tensor, RowSum]]:
        """Return what `_best_of` does, for every shard of this process."""
        floor_E = torch.full((self.tiles.num,), -torch.inf, device=self.device)
        with in_turn(self.output.weight.parts.values(), False):
            return self.output.exchange.each(lambda shard: self._best_of(shard, floor_E, total_E1))

    def _best_of(self, shard: int, floor_E: Tensor, total_E1: Tensor | None) -> tuple[Tensor, RowSum]:
        """Return the keys of a shard's best units, int64 [E, K], and the sum over its units.

        The sum is empty unless units are ranked by logits while scores need a divisor.
        """
        tiles, units = self.tiles, self.shards.units(shard)
        searches = [running_top_k(self.k, floor_E[block]) for block in tiles.blocks]
        sums = [tiles.no_sum(block) for block in tiles.blocks]
        for start, stop in tiles.of(shard):
            for number, ranked_BT in enumerate(tiles.by_block(shard, start, stop)):
                if self.divides and self.by_logit:
                    tiles.add_to(sums[number], ranked_BT)
                if not self.by_logit:
                    divisor_B1 = None if total_E1 is None else total_E1[tiles.blocks[number]]
                    ranked_BT = tiles.scores(ranked_BT, divisor_B1)
                if self.weight_L is not None:
                    ranked_BT = ranked_BT * self.weight_L[as_slice(units[start:stop])]
                self.hidden[number].from_tile(ranked_BT, shard, start, units)
                self._bar(ranked_BT, shard, start)
                searches[number].add(ranked_BT, units[start:stop])
        return torch.cat([search.result() for search in searches]), RowSum.joined(sums)

    def _bar(self, ranked_BT: Tensor, shard: int, start: int) -> None:
        """Set the scores of units that no example may have to -inf."""
        if self.barred is not None:
            own = self.barred[shard]
            low, high = own.edges([start, start + ranked_BT.shape[1]])
            ranked_BT[:, own.units_Z[low:high] - start] = -torch.inf


@dataclass(frozen=True)
class _Hidden:
    """What some of the examples of a block may not have, and what changes their scores, by shard.

    Attributes:
        excluded: Units to leave out.
        factors: Factors on scores.
        only: Units to choose from.
        listed_B: Whether an example has such units, bool [B].
        full: Categories to leave out.
    """

    excluded: list[ByUnit] | None
    factors: list[ByUnit] | None
    only: list[ByUnit] | None
    listed_B: Tensor | None
    full: Sequence[Full]

    def from_tile(self, ranked_BT: Tensor, shard: int, start: int, units: range) -> None:
        """Apply this to the scores of a tile of a shard with these units."""
        stop = start + ranked_BT.shape[1]
        if self.factors is not None:
            _multiply(ranked_BT, self.factors[shard], start)
        if self.only is not None:
            own = self.only[shard]
            low, high = own.edges([start, stop])
            places = own.examples_Z[low:high], own.units_Z[low:high] - start
            kept_Z = ranked_BT[places]
            ranked_BT[self.listed_B] = -torch.inf
            ranked_BT[places] = kept_Z
        if self.excluded is not None:
            own = self.excluded[shard]
            low, high = own.edges([start, stop])
            ranked_BT[own.examples_Z[low:high], own.units_Z[low:high] - start] = -torch.inf
        for each in self.full:
            for category_T in each.category_LM[as_slice(units[start:stop])].unbind(dim=1):
                ranked_BT.masked_fill_(each.full_EC[:, category_T], -torch.inf)


def _multiply(ranked_ET: Tensor, factors: ByUnit, start: int) -> None:
    """Multiply the scores of those units of a tile that have factors."""
    low, high = factors.edges([start, start + ranked_ET.shape[1]])
    span = slice(low, high)
    ranked_ET[factors.examples_Z[span], factors.units_Z[span] - start] *= factors.values_or_ones(span)
