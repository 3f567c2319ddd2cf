"""The k best units of an output for every example of a batch, without ever holding all its scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import running_top_k
from widenet.kernels.running_top_k import unpacked
from widenet.model.activations import activate, definition
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.model.row_sum import RowSum, divided, over_shards
from widenet.model.sharding import ByUnit, split
from widenet.plan.tiles import searched_tiles
from widenet.sparse import SparseBatch
from widenet.spec.activations import ROW_WISE


@dataclass(frozen=True)
class Filter:
    """What must not be recommended, and what counts more or less.

    banned_L: bool [L], units that nobody is shown.
    weight_L: float32 [L], factors of at least 0 on the scores; a unit of weight 0 is shown to nobody.
    """

    banned_L: Tensor | None = None
    weight_L: Tensor | None = None

    def within(self, num_units: int, output: WideOutput) -> "Filter":
        """This filter, which also leaves out the units from `num_units` on: an output's room for units to
        come.
        """
        if num_units >= output.width:
            return self
        room_L = (
            torch.arange(output.width, device=next(iter(output.weight.parts.values())).weight.device)
            >= num_units
        )
        return Filter(room_L if self.banned_L is None else room_L | self.banned_L, self.weight_L)

    def barred(self) -> SparseBatch | None:
        """The units that nobody is shown, as of one example; None where nothing is filtered."""
        named = [
            barred_L
            for barred_L in (self.banned_L, None if self.weight_L is None else self.weight_L == 0)
            if barred_L is not None
        ]
        if not named:
            return None
        barred_B = torch.stack(named).any(dim=0).nonzero()[:, 0]
        return SparseBatch(torch.tensor([0, len(barred_B)], device=barred_B.device), barred_B)


def top_k(
    network: Network,
    fields: Mapping[str, Values],
    output_name: str,
    k: int,
    excluded: SparseBatch | None = None,
    allowed: Filter | None = None,
    scores: bool = True,
    factors: SparseBatch | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores float32 [E, K] descending and units int64 [E, K] of the best units, K = min(k, width).

    excluded: units that must not appear, example by example. Where fewer than K units are left, places hold
    -inf and -1. Of equal scores the lower unit comes first. Scores are activations, times the filter's
    weights, times the factors.
    factors: by example, of the units that they name, each once.
    scores: False leaves logits in their place where those give the same ranking, which a softmax makes much
    cheaper.
    """
    with torch.no_grad():
        activity = network.forward(network.prepare(fields, None), None)
        output = network.met(output_name, activity)
        direct_EH = network.direct(output, activity)
        return _Ranking(
            Tiles(output, direct_EH), min(k, output.width), excluded, allowed or Filter(), scores, factors
        ).run()


class Tiles:
    """An output as some examples meet it, a tile of its units at a time."""

    def __init__(self, output: WideOutput, direct_EH: Tensor) -> None:
        self.output, self.direct_EH = output, direct_EH
        self.activation, self.shards = output.spec.activation, output.weight.shards

    def of(self, shard: int) -> Iterator[tuple[int, int]]:
        """The tiles of a shard, in order."""
        return searched_tiles(self.shards.size(shard), len(self.direct_EH), self.direct_EH.device.type)

    def logits(self, shard: int, start: int, stop: int) -> Tensor:
        """float32 [E, T], of a shard at hand."""
        return self.output.tile(shard, start, stop).logits(self.direct_EH)

    def scores(self, logits: Tensor, total_E1: Tensor | None) -> Tensor:
        """The activations of some logits. total_E1: as of `total`."""
        return (
            activate(self.activation, logits)
            if total_E1 is None
            else divided(self.activation.kind, logits, total_E1)
        )

    def no_sum(self) -> RowSum:
        """What the activations divide by, over no unit so far."""
        return RowSum.empty(self.activation.kind, len(self.direct_EH), self.direct_EH.device)

    def total(self) -> Tensor | None:
        """What the activations divide by, float32 [E, 1]; None where each unit is alone.

        Every process must ask.
        """
        if self.activation.kind not in ROW_WISE:
            return None
        return self.summed(self.output.exchange.each(self._sum_of))

    def summed(self, sums: Sequence[RowSum]) -> Tensor:
        """The same, from the sums over every shard at hand."""
        return over_shards(sums, self.output.exchange, self.output.where)[:, None]

    def _sum_of(self, shard: int) -> RowSum:
        summed = self.no_sum()
        for start, stop in self.of(shard):
            summed.add(self.logits(shard, start, stop))
        return summed


class _Ranking:
    def __init__(
        self,
        tiles: Tiles,
        k: int,
        excluded: SparseBatch | None,
        allowed: Filter,
        scores: bool,
        factors: SparseBatch | None,
    ) -> None:
        self.tiles, self.output, self.direct_EH, self.k = tiles, tiles.output, tiles.direct_EH, k
        self.shards, self.weight_L = tiles.shards, allowed.weight_L
        self.excluded, self.barred, self.factors = (
            self._by_unit(batch) for batch in (excluded, allowed.barred(), factors)
        )
        kind = tiles.activation.kind
        self.scores = scores
        self.by_logit = allowed.weight_L is None and factors is None and definition(tiles.activation).rising
        self.divides = kind in ROW_WISE and (scores or not self.by_logit)

    def _by_unit(self, batch: SparseBatch | None) -> list[ByUnit] | None:
        return None if batch is None else [ByUnit.of(part) for part in split(batch, self.shards)]

    def run(self) -> tuple[Tensor, Tensor]:
        exchange, where = self.output.exchange, self.output.where
        total_E1 = None if self.by_logit else self.tiles.total()
        floor_E = self.direct_EH.new_full((len(self.direct_EH),), -torch.inf)
        found = exchange.each(lambda shard: self._best_of(shard, floor_E, total_E1))
        if self.divides and self.by_logit:
            total_E1 = self.tiles.summed([summed for _, summed in found])
        keys_EN = torch.cat(exchange.gather([keys_EK for keys_EK, _ in found], where), dim=1)
        ranked_EK, units_EK = unpacked(keys_EN.topk(self.k, dim=1).values)
        scores_EK = self.tiles.scores(ranked_EK, total_E1) if self.by_logit and self.scores else ranked_EK
        return scores_EK.masked_fill(units_EK < 0, -torch.inf), units_EK

    def _best_of(self, shard: int, floor_E: Tensor, total_E1: Tensor | None) -> tuple[Tensor, RowSum]:
        """The keys of a shard's best, int64 [E, K]; and, where scores divide by it but logits rank, the
        sum over its units.
        """
        running, summed = running_top_k(self.k, floor_E), self.tiles.no_sum()
        first = self.shards.start(shard)
        for start, stop in self.tiles.of(shard):
            ranked_ET = self.tiles.logits(shard, start, stop)
            if self.divides and self.by_logit:
                summed.add(ranked_ET)
            if not self.by_logit:
                ranked_ET = self.tiles.scores(ranked_ET, total_E1)
            if self.weight_L is not None:
                ranked_ET = ranked_ET * self.weight_L[first + start : first + stop]
            if self.factors is not None:
                _multiply(ranked_ET, self.factors[shard], start)
            self._hide(ranked_ET, shard, start)
            running.add(ranked_ET, first + start)
        return running.result(), summed

    def _hide(self, ranked_ET: Tensor, shard: int, start: int) -> None:
        """Leave what must not appear without a score."""
        stop = start + ranked_ET.shape[1]
        if self.excluded is not None:
            own = self.excluded[shard]
            low, high = own.edges([start, stop])
            ranked_ET[own.examples_Z[low:high], own.units_Z[low:high] - start] = -torch.inf
        if self.barred is not None:
            own = self.barred[shard]
            low, high = own.edges([start, stop])
            ranked_ET[:, own.units_Z[low:high] - start] = -torch.inf


def _multiply(ranked_ET: Tensor, factors: ByUnit, start: int) -> None:
    """Multiply what belongs to the factors that a tile has."""
    low, high = factors.edges([start, start + ranked_ET.shape[1]])
    span = slice(low, high)
    ranked_ET[factors.examples_Z[span], factors.units_Z[span] - start] *= factors.values_or_ones(span)
