"""Ranking: an output's logits tile by tile, its k best units for every example, and limits of categories."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels import best_units
from widenet.kernels.best_units import running_top_k
from widenet.kernels.native import library_runs
from widenet.kernels.reference import MISSING, unpacked
from widenet.model.activations import activate, rises
from widenet.model.layers.output import WideOutput
from widenet.model.losses import RowSum, divided, over_shards
from widenet.model.network import Network
from widenet.model.operands import filled
from widenet.model.preparation import Values
from widenet.plan.tiles import PREDICTED_ROWS, predicted_tiles, predicted_units
from widenet.predict.terms import Term, of_entries, of_units, terms_of
from widenet.sparse import SparseBatch, from_rows
from widenet.spec.activations import ROW_WISE

_DEEPER = 5
"""Candidates of a list under limits, as a multiple of its length."""
_COUNTS = 2**25
"""Largest number of counts of categories at a time."""


def in_blocks(network: Network, fields: Mapping[str, Values]) -> dict[str, Values]:
    """Return fields with empty examples after theirs, up to a multiple of `Network.filled_rows`."""
    return {name: _filled(values, network.filled_rows) for name, values in fields.items()}


def _filled(values: Values, rows: int) -> Values:
    if not isinstance(values, SparseBatch):
        return filled(values, rows)
    ends = values.indptr[-1:].expand(-values.num_examples % rows)
    return SparseBatch(torch.cat([values.indptr, ends]), values.indices, values.values)


def num_examples(fields: Mapping[str, Values]) -> int:
    """Return the number of examples of a batch, E."""
    values = next(iter(fields.values()))
    return values.num_examples if isinstance(values, SparseBatch) else len(values)


class Tiles:
    """Computes logits and scores of an output for E examples, a tile of its units at a time.

    Attributes:
        output: The output.
        direct_EH: The vectors that enter it, with rows that fill up the last block.
        num: Number of examples without these rows.
        history: Features of the examples in the host's memory, for an output with terms of them.
        terms: These terms.
        rows: Examples that torch multiplies at once.
        multiplies: Whether logits are products of vectors.
        query: The examples, if the native library multiplies them.
        entering_EH: What torch multiplies with otherwise: rounded as the library does for units in 8 bits.
    """

    def __init__(
        self, output: WideOutput, direct_EH: Tensor, num: int, history: SparseBatch | None = None
    ) -> None:
        self.output, self.direct_EH, self.num, self.history = output, direct_EH, num, history
        self.activation, self.shards = output.spec.activation, output.weight.shards
        self.rows, self.terms = PREDICTED_ROWS[direct_EH.device.type], terms_of(output, history)
        self.multiplies = output.features is None and not output.spec.weightless
        self.query: best_units.Query | None = None
        self.entering_EH = direct_EH
        if self.multiplies and library_runs(direct_EH.device):
            self.query = best_units.Query.of(direct_EH[:num], output.weight.in_8_bits)
        elif self.multiplies and output.weight.in_8_bits:
            self.entering_EH = best_units.dequantized(*best_units.quantized_queries(direct_EH))

    @classmethod
    def of_batch(cls, network: Network, fields: Mapping[str, Values], name: str) -> "Tiles":
        """Return the tiles of an output for a batch."""
        activity = network.forward(network.prepare(in_blocks(network, fields)))
        output, history = network.output_for(name, activity), None
        if output.spec.term is not None:
            values = fields[output.spec.field]
            assert isinstance(values, SparseBatch)
            history = values.to("cpu")
        return cls(output, network.direct(output, activity), num_examples(fields), history)

    def of_rows(self, rows: Tensor) -> "Tiles":
        """Return the tiles of some of the examples, int64 [R]."""
        output, history = self.output, None if self.history is None else self.history.take(rows.cpu())
        rows = rows.to(self.direct_EH.device)
        if output.features is not None:
            output = replace(output, features=output.features.take(rows))
        return Tiles(output, filled(self.direct_EH[rows], self.rows), len(rows), history)

    def cut(self, shard: int) -> Iterator[tuple[int, int]]:
        """The tiles of a shard, in order: start and stop within the shard."""
        columns = self.output.weight.columns
        return predicted_tiles(self.shards.size(shard), columns, self.direct_EH.device.type)

    def of(self, shard: int) -> Iterator[tuple[int, int]]:
        """As `cut`, while the weights come from where they lie."""
        units = predicted_units(self.output.weight.columns, self.direct_EH.device.type)
        return self.output.weight.parts[shard].tiles(self.shards.size(shard), units, rows=0)

    def logits(self, shard: int, start: int, stop: int) -> Tensor:
        """Return the logits of a tile of one of this process's shards, float32 [E, T]."""
        if self.query is not None:
            logits_ET = best_units.logits(self.query, self.output.units(shard, start, stop))
        else:
            tile, rows = self.output.tile(shard, start, stop), len(self.direct_EH)
            if self.multiplies:
                tile, rows = tile.wide_enough(), self.rows
            blocks = [tile.logits(block) for block in torch.split(self.entering_EH, max(rows, 1))]
            logits_ET = torch.cat(blocks)[: self.num, : stop - start].contiguous()
        for term in self.terms:
            term(logits_ET, shard, start)
        return logits_ET

    def whole(self, adds_up: bool) -> list[best_units.Units] | None:
        """Return the shards if the native library can rank them whole, and sum up the divisors on the way."""
        sums = not adds_up or self.activation.kind == "softmax"
        return self.output.whole_shards() if self.query is not None and not self.terms and sums else None

    def scores(self, logits: Tensor, total_E1: Tensor | None) -> Tensor:
        """Activations of some logits [E, N]; `total_E1` is the result of `total`."""
        whole, columns = filled(logits, columns=self.rows), logits.shape[1]
        if total_E1 is None:
            return activate(self.activation, whole)[:, :columns]
        return divided(self.activation.kind, whole, total_E1)[:, :columns]

    def empty_sum(self) -> RowSum:
        """An empty sum for the divisors of the activations."""
        return RowSum.empty(self.activation.kind, self.num, self.direct_EH.device)

    def add_to(self, summed: RowSum, logits_ET: Tensor) -> None:
        """Add the logits of a tile to a sum."""
        if self.activation.kind == "softmax" and logits_ET.device.type == "cpu":
            best_units.add_softmax_sum(logits_ET, summed.peak_E, summed.sum_E)
        else:
            summed.add(logits_ET, self.rows)

    def total(self) -> Tensor | None:
        """Divisor of the activations, float32 [E, 1]; None if the activation is elementwise.

        Every process must call this.
        """
        if self.activation.kind not in ROW_WISE:
            return None
        return self.summed(self.output.exchange.each(self._sum_of))

    def summed(self, sums: Sequence[RowSum]) -> Tensor:
        """As `total`, from the sums over each of this process's shards."""
        return over_shards(sums, self.output.exchange, self.output.where)[:, None]

    def _sum_of(self, shard: int) -> RowSum:
        summed = self.empty_sum()
        for start, stop in self.of(shard):
            self.add_to(summed, self.logits(shard, start, stop))
        return summed


@torch.no_grad()
def layer_values(network: Network, fields: Mapping[str, Values], layer: str) -> Iterator[Tensor]:
    """Yield the values of a layer's units, float32 [E, T], in order of units.

    A hidden layer is one piece; an output comes tile by tile. Every process must take all pieces.
    """
    if layer not in network.outputs:
        activity = network.forward(network.prepare(in_blocks(network, fields)))
        yield activity.values[layer][: num_examples(fields)]
        return
    tiles = Tiles.of_batch(network, fields, layer)
    output, total_E1, shards = tiles.output, tiles.total(), tiles.shards

    def scored(start: int, stop: int, shard: int) -> Tensor:
        num = min(stop, shards.size(shard)) - start
        return pad(tiles.scores(tiles.logits(shard, start, start + num), total_E1), (0, stop - start - num))

    for start, stop in tiles.cut(0):
        pieces = output.exchange.gather(output.exchange.each(partial(scored, start, stop)), output.where)
        yield torch.stack(pieces, dim=2).flatten(1)[:, : shards.width - start * shards.count]


@dataclass(frozen=True)
class Only:
    """Units to choose from, for some examples of a batch.

    Attributes:
        units: The units of each example; of the others, none.
        listed_E: Whether an example has such units, bool [E].
    """

    units: SparseBatch
    listed_E: Tensor

    def take(self, rows: Tensor) -> "Only":
        """The units of some examples, int64 [R]."""
        return Only(self.units.to("cpu").take(rows), self.listed_E[rows])


@dataclass(frozen=True)
class Limit:
    """The largest number of items of one category in a list.

    Attributes:
        category_LM: The categories of each unit, int64 [L, M]; the last number fills the rows of units with
            fewer than M, and limits nothing.
        num_categories: Number of categories, with that last number.
        most: The largest number of items of each category.
    """

    category_LM: np.ndarray
    num_categories: int
    most: int


@dataclass(frozen=True)
class Rules:
    """Which units the lists of all examples may have, and what the units of a list fulfil together.

    Attributes:
        banned_L: Units that no one is shown, bool [L].
        weight_L: Factors on the scores, float32 [L], at least 0; a unit of weight 0 is shown to no one.
        limits: Limits of categories.
    """

    banned_L: Tensor | None = None
    weight_L: Tensor | None = None
    limits: Sequence[Limit] = ()

    def to(self, device: torch.device) -> "Rules":
        """The rules on another device, but for the limits."""
        both = self.banned_L, self.weight_L
        banned_L, weight_L = (None if each is None else each.to(device) for each in both)
        return replace(self, banned_L=banned_L, weight_L=weight_L)

    def within(self, num_units: int, output: WideOutput) -> "Rules":
        """These rules without the units from `num_units` on, which the output reserves for new features."""
        if num_units >= output.width:
            return self
        return self.without(torch.arange(output.width, device=output.weight.device) >= num_units)

    def without(self, banned_L: Tensor) -> "Rules":
        """These rules without further units, bool [L]."""
        return replace(self, banned_L=banned_L if self.banned_L is None else banned_L | self.banned_L)

    def pool(self, k: int) -> int:
        """Number of candidates among which the k items of a list are sought at a time."""
        return _DEEPER * k if self.limits else k


def joined(first: SparseBatch, second: SparseBatch) -> SparseBatch:
    """Join the entries of two batches example by example, without values; a unit may occur twice."""
    examples_Z = torch.cat([first.example_of_entry(), second.example_of_entry()])
    order_Z = torch.argsort(examples_Z, stable=True)
    units_Z = torch.cat([first.indices.long(), second.indices.long()])[order_Z]
    return SparseBatch(first.indptr + second.indptr, units_Z)


def top_k(
    network: Network,
    fields: Mapping[str, Values],
    output_name: str,
    k: int,
    excluded: SparseBatch | None = None,
    rules: Rules | None = None,
    scores: bool = True,
    factors: SparseBatch | None = None,
    only: Only | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the k best units of an output for every example of a batch, best first, under rules.

    A score is an activation, times the unit's weight, times the factor. Of units with equal scores, the
    lower one comes first. An example's scores have the same bits in every batch.

    Limits: from the best unit on, every unit is taken whose categories all have fewer than their largest
    number in the list so far.

    Args:
        network: The network; all its processes must call this.
        fields: Values of the fields that the inputs read, for E examples, in the host's memory.
        output_name: Name of the output.
        k: Number of units.
        excluded: Units to leave out, example by example.
        rules: The rules for all examples.
        scores: If False and without limits, logits may be returned instead of scores if they give the
            same ranking. This is much faster for a softmax.
        factors: Factors on the scores of some units, example by example, each unit at most once; 0 leaves a
            unit out.
        only: Units to choose from, for some examples.

    Returns:
        Scores float32 [E, K] and units int64 [E, K], K = min(k, width). Missing entries are -inf and -1.
    """
    with torch.no_grad():
        tiles, rules = Tiles.of_batch(network, fields, output_name), rules or Rules()
        if not rules.limits:
            return ranked(tiles, k, excluded, rules, scores, factors, only)
        k = min(k, tiles.output.width)
        most = [tiles.num, *(_COUNTS // limit.num_categories for limit in rules.limits)]
        blocks = torch.split(torch.arange(tiles.num), max(1, min(most)))
        lists = [_lists(tiles, rows, k, rules, excluded, factors, only) for rows in blocks]
        scores_Ek, units_Ek = zip(*lists, strict=True)
        return torch.cat(scores_Ek), torch.cat(units_Ek)


def ranked(
    tiles: Tiles,
    k: int,
    excluded: SparseBatch | None = None,
    rules: Rules | None = None,
    scores: bool = True,
    factors: SparseBatch | None = None,
    only: Only | None = None,
    terms: Sequence[Term] = (),
) -> tuple[Tensor, Tensor]:
    """As `top_k` without limits, for tiles that are there already; `terms` change the scores, too."""
    output, rules, k = tiles.output, rules or Rules(), min(k, tiles.output.width)
    by_logit = rules.weight_L is None and factors is None and rises(tiles.activation)
    total_E1 = None if by_logit else tiles.total()
    # The divisors are summed up on the way if they do not change the order.
    adds_up = by_logit and scores and tiles.activation.kind in ROW_WISE
    whole = tiles.whole(adds_up) if by_logit and only is None and not terms else None
    if whole is not None:
        keys, sums = _swept(tiles, whole, k, excluded, rules.banned_L, adds_up)
    else:
        terms = [*_terms(output, excluded, rules, factors, only), *terms]
        floor_E = torch.full((tiles.num,), -torch.inf, device=tiles.direct_EH.device)

        def search(shard: int) -> tuple[Tensor, RowSum]:
            running, summed = running_top_k(k, floor_E), tiles.empty_sum()
            units = tiles.shards.units(shard)
            for start, stop in tiles.of(shard):
                ranked_ET = tiles.logits(shard, start, stop)
                if adds_up:
                    tiles.add_to(summed, ranked_ET)
                if not by_logit:
                    ranked_ET = tiles.scores(ranked_ET, total_E1)
                for term in terms:
                    term(ranked_ET, shard, start)
                running.add(ranked_ET, units[start:stop])
            return running.result(), summed

        best = output.exchange.each(search)
        keys, sums = [keys_EK for keys_EK, _ in best], [summed for _, summed in best]
    if adds_up:
        total_E1 = tiles.summed(sums)
    keys_EN = torch.cat(output.exchange.gather(keys, output.where), dim=1)
    scores_EK, units_EK = unpacked(keys_EN.topk(k, dim=1).values)
    if by_logit and scores:
        scores_EK = tiles.scores(scores_EK, total_E1)
    return scores_EK.masked_fill(units_EK < 0, -torch.inf), units_EK


def _terms(
    output: WideOutput,
    excluded: SparseBatch | None,
    rules: Rules,
    factors: SparseBatch | None,
    only: Only | None,
) -> Iterator[Term]:
    """Yield the terms of what some examples may not have, and of factors on scores."""
    if rules.weight_L is not None:
        yield of_units(output, rules.weight_L, _weighed)
    if factors is not None:
        yield of_entries(output, factors, _weighed)
    if only is not None:
        yield of_entries(output, only.units, lambda scores, _: scores, only.listed_E)
    if excluded is not None:
        yield of_entries(output, excluded, lambda scores, _: torch.full_like(scores, -torch.inf))
    if rules.banned_L is not None:
        yield of_units(output, rules.banned_L, lambda scores, at: scores.masked_fill_(at, -torch.inf))


def _weighed(scores: Tensor, factors: Tensor) -> Tensor:
    return scores.mul_(factors).masked_fill_(factors == 0, -torch.inf)


def _swept(
    tiles: Tiles,
    shards: Sequence[best_units.Units],
    k: int,
    excluded: SparseBatch | None,
    banned_L: Tensor | None,
    adds_up: bool,
) -> tuple[list[Tensor], list[RowSum]]:
    """Return keys int64 [E, k] for every shard, ranked whole by the native library, and the sums over them.

    All keys together hold the best units. A thread takes its search from shard to shard, because few units of
    a later shard exceed the best so far.
    """
    assert tiles.query is not None
    num, threads = tiles.num, min(tiles.output.exchange.num_threads, len(shards))
    peak_SE = torch.full((len(shards), num), -torch.inf)
    sum_SE = torch.zeros(len(shards), num, dtype=torch.float64)
    floor_E, missing_Ek = torch.full((num,), -torch.inf), torch.full((num, k), MISSING)
    searches = [best_units.NativeTopK(k, floor_E) for _ in range(threads)]
    hidden = None if excluded is None else _ascending(excluded)
    own = (peak_SE, sum_SE) if adds_up else ()
    best_units.rank(tiles.query, shards, searches, hidden, banned_L, *own)
    keys = [*(search.result() for search in searches), *[missing_Ek] * (len(shards) - threads)]
    return keys, [RowSum("softmax", *own) for own in zip(peak_SE, sum_SE, strict=True)]


def _ascending(batch: SparseBatch) -> SparseBatch:
    """Return a batch with the entries of every example in ascending order, int64, without values."""
    unit_Z, example_Z = batch.indices.long(), batch.example_of_entry().numpy()
    behind_Z = np.diff(unit_Z.numpy()) < 0
    is_mixed = (behind_Z & (example_Z[1:] == example_Z[:-1])).any()
    return batch.distinct() if is_mixed else SparseBatch(batch.indptr, unit_Z)


def _lists(
    tiles: Tiles,
    examples: Tensor,
    k: int,
    rules: Rules,
    excluded: SparseBatch | None,
    factors: SparseBatch | None,
    only: Only | None,
) -> tuple[Tensor, Tensor]:
    """Return the lists of some examples, int64 [E]: scores float32 [E, k] and units int64 [E, k].

    Each round ranks the next candidates of the lists that are not full, without full categories.
    """
    num = len(examples)
    scores_Ek, units_Ek = np.full((num, k), -np.inf, np.float32), np.full((num, k), -1)
    number_E, pending = np.zeros(num, np.int64), np.arange(num)
    counts = [np.zeros((num, limit.num_categories), np.int32) for limit in rules.limits]
    while len(pending):
        own, before = examples[torch.from_numpy(pending)], number_E[pending]
        hidden = from_rows([row[row >= 0].tolist() for row in units_Ek[pending]])
        found = ranked(
            tiles.of_rows(own),
            rules.pool(k),
            hidden if excluded is None else joined(excluded.to("cpu").take(own), hidden),
            rules,
            factors=None if factors is None else factors.to("cpu").take(own),
            only=None if only is None else only.take(own),
            terms=[*_closed(tiles, rules, [count[pending] for count in counts])],
        )
        scores_EP, units_EP = (each.cpu().numpy() for each in found)
        for scores_E, units_E in zip(scores_EP.T, units_EP.T, strict=True):
            fits_E = (units_E >= 0) & (number_E[pending] < k)
            for limit, count_EC in zip(rules.limits, counts, strict=True):
                fits_E &= (count_EC[pending[:, None], limit.category_LM[units_E]] < limit.most).all(axis=1)
            rows, chosen = pending[fits_E], units_E[fits_E]
            scores_Ek[rows, number_E[rows]] = scores_E[fits_E]
            units_Ek[rows, number_E[rows]] = chosen
            number_E[rows] += 1
            for limit, count_EC in zip(rules.limits, counts, strict=True):
                np.add.at(count_EC, (rows[:, None], limit.category_LM[chosen]), 1)
                count_EC[:, -1] = 0
        goes_on = (units_EP[:, -1] >= 0) & (number_E[pending] < k)
        assert (number_E[pending] > before)[goes_on].all(), "every round fills lists or ends them"
        pending = pending[goes_on]
    return torch.from_numpy(scores_Ek), torch.from_numpy(units_Ek)


def _closed(tiles: Tiles, rules: Rules, counts: Sequence[np.ndarray]) -> Iterator[Term]:
    """Yield the terms that leave out the units of categories of which lists have the largest number."""
    device = tiles.direct_EH.device
    for limit, count_EC in zip(rules.limits, counts, strict=True):
        full_EC = count_EC >= limit.most
        if full_EC.any():
            close = partial(_close, torch.from_numpy(full_EC).to(device))
            yield of_units(tiles.output, torch.from_numpy(limit.category_LM).to(device), close)


def _close(full_EC: Tensor, scores_ET: Tensor, category_TM: Tensor) -> Tensor:
    for category_T in category_TM.unbind(dim=1):
        scores_ET.masked_fill_(full_EC[:, category_T], -torch.inf)
    return scores_ET
