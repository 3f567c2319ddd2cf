"""The k items of a list that fulfil rules together, sought among more and more of the best units."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.predict.terms import Term, of_units
from widenet.predict.top_k import Filter, Only, Tiles, joined, ranked, top_k
from widenet.sparse import SparseBatch

_DEEPER, _LEAST_POOL = 5, 100
_COUNTS, _VECTOR_NUMBERS = 2**25, 2**22
"""Largest number of counts of categories, and of numbers in vectors of candidates, at a time."""


@dataclass(frozen=True)
class Limit:
    """The largest number of items of one category in a list.

    Attributes:
        category_LM: The categories of each unit, int64 [L, M]; the last number fills the rows of units with
            fewer than M, and limits nothing.
        num_categories: Number of categories, with that last number.
        most: The largest number of items of each category.
    """

    category_LM: Tensor
    num_categories: int
    most: int


@dataclass(frozen=True)
class ListRules:
    """Rules that the items of a list fulfil together.

    Attributes:
        limits: Limits of categories.
        diversity: Weight of the similarity to items before, in [0, 1]; 0 ranks by score alone.
    """

    limits: Sequence[Limit] = ()
    diversity: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is a rule."""
        return bool(self.limits) or self.diversity > 0

    def pool(self, k: int) -> int:
        """Number of candidates among which the k items of a list are sought at a time."""
        if self.diversity:
            return max(_LEAST_POOL, _DEEPER * k)
        return _DEEPER * k if self.limits else k


def best_lists(
    network: Network,
    fields: Mapping[str, Values],
    output_name: str,
    k: int,
    excluded: SparseBatch | None = None,
    allowed: Filter | None = None,
    rules: ListRules | None = None,
    only: Only | None = None,
    factors: SparseBatch | None = None,
) -> tuple[Tensor, Tensor]:
    """Return a list of k units for every example of a batch, as `top_k`, such that it fulfils the rules.

    Limits: from the best unit on, every unit is taken whose categories all have fewer than their largest
    number in the list so far. With diversity d, each place of the list has the open candidate of the largest

        (1 - d) * relevance - d * largest cosine to a unit before it in the list

    of the P best units, P = `rules.pool(k)`; at the first place the cosine counts 0. The relevance of a score
    s is (s - low) / (high - low) for the lowest and highest score among them. (Maximal marginal relevance,
    J. Carbonell and J. Goldstein, SIGIR 1998.) If the limits leave less than k of these, the next P follow.

    Args:
        network: The network; all its processes must call this.
        fields: As for `top_k`, with the other arguments.
        output_name: Name of the output.
        k: Number of units.
        excluded: Units to leave out, example by example.
        allowed: Filter for all examples.
        rules: The rules; None or none is `top_k`.
        only: Units to choose from, for some examples.
        factors: Factors on the scores of some units, example by example, each unit at most once.
    """
    if not rules:
        return top_k(network, fields, output_name, k, excluded, allowed, factors=factors, only=only)
    with torch.no_grad():
        tiles = Tiles.of_batch(network, fields, output_name)
        k = min(k, tiles.output.width)
        most = [tiles.num, *(_COUNTS // limit.num_categories for limit in rules.limits)]
        if rules.diversity:
            most.append(_VECTOR_NUMBERS // (rules.pool(k) * max(1, tiles.direct_EH.shape[1])))
        lists = [
            _lists(
                network,
                tiles.of_rows(rows),
                k,
                rules,
                allowed,
                _taken(excluded, rows),
                _taken(factors, rows),
                None if only is None else only.take(rows),
            )
            for rows in torch.split(torch.arange(tiles.num), max(1, min(most)))
        ]
        scores, units = zip(*lists, strict=True)
        return torch.cat(scores), torch.cat(units)


def _taken(batch: SparseBatch | None, rows: Tensor) -> SparseBatch | None:
    return None if batch is None else batch.to("cpu").take(rows)


def _lists(
    network: Network,
    tiles: Tiles,
    k: int,
    rules: ListRules,
    allowed: Filter | None,
    excluded: SparseBatch | None,
    factors: SparseBatch | None,
    only: Only | None,
) -> tuple[Tensor, Tensor]:
    """Return the lists of some examples: scores float32 [E, k] and units int64 [E, k]."""
    scores_Ek, units_Ek = np.full((tiles.num, k), -np.inf, np.float32), np.full((tiles.num, k), -1)
    number_E, pending = np.zeros(tiles.num, np.int64), np.arange(tiles.num)
    categories = [limit.category_LM.numpy() for limit in rules.limits]
    counts = [np.zeros((tiles.num, limit.num_categories), np.int32) for limit in rules.limits]
    while len(pending):
        own, before = torch.from_numpy(pending), number_E[pending]
        hidden = SparseBatch.from_lists([row[row >= 0].tolist() for row in units_Ek[pending]])
        found = ranked(
            tiles.of_rows(own),
            rules.pool(k),
            hidden if excluded is None else joined(excluded.take(own), hidden),
            allowed,
            factors=_taken(factors, own),
            only=None if only is None else only.take(own),
            terms=[*_closed(tiles, rules, [count[pending] for count in counts])],
        )
        scores_EP, units_EP = (each.cpu().numpy() for each in found)
        open_EP, nearest_EP = units_EP >= 0, np.full(units_EP.shape, -np.inf)
        relevance_EP = np.broadcast_to(-np.arange(units_EP.shape[1], dtype=np.float64), units_EP.shape)
        if rules.diversity:
            relevance_EP = _relevance(scores_EP, open_EP)
            vectors = directions(network, tiles, np.concatenate([units_EP, units_Ek[pending]], axis=1))
            vectors_EPH = vectors[:, : units_EP.shape[1]]
            for place in range(before.max()):
                cosine_EP = (vectors_EPH * vectors[:, units_EP.shape[1] + place, None]).sum(axis=-1)
                is_there_E1 = (before > place)[:, None]
                np.maximum(nearest_EP, cosine_EP, out=nearest_EP, where=is_there_E1)
        while True:
            fits_EP = open_EP & (number_E[pending] < k)[:, None]
            for limit, category_LM, count_EC in zip(rules.limits, categories, counts, strict=True):
                count_EPM = count_EC[pending[:, None, None], category_LM[units_EP]]
                fits_EP &= (count_EPM < limit.most).all(axis=2)
            going = np.flatnonzero(fits_EP.any(axis=1))
            if not len(going):
                break
            beside_EP = np.where(np.isneginf(nearest_EP), 0.0, nearest_EP)
            gain_EP = (1 - rules.diversity) * relevance_EP - rules.diversity * beside_EP
            best = np.where(fits_EP, gain_EP, -np.inf).argmax(axis=1)[going]
            rows, chosen = pending[going], units_EP[going, best]
            scores_Ek[rows, number_E[rows]], units_Ek[rows, number_E[rows]] = scores_EP[going, best], chosen
            number_E[rows] += 1
            open_EP[going, best] = False
            for category_LM, count_EC in zip(categories, counts, strict=True):
                np.add.at(count_EC, (rows[:, None], category_LM[chosen]), 1)
                count_EC[:, -1] = 0
            if rules.diversity:
                cosine = (vectors_EPH[going] * vectors_EPH[going, best][:, None]).sum(axis=-1)
                nearest_EP[going] = np.maximum(nearest_EP[going], cosine)
        goes_on = (units_EP[:, -1] >= 0) & (number_E[pending] < k)
        assert (number_E[pending] > before)[goes_on].all(), "every round fills lists or ends them"
        pending = pending[goes_on]
    return torch.from_numpy(scores_Ek), torch.from_numpy(units_Ek)


def _closed(tiles: Tiles, rules: ListRules, counts: Sequence[np.ndarray]) -> Iterator[Term]:
    """Yield the terms that leave out the units of categories of which lists have the largest number."""
    device = tiles.direct_EH.device
    for limit, count_EC in zip(rules.limits, counts, strict=True):
        full_EC = torch.from_numpy(count_EC >= limit.most)
        if full_EC.any():
            yield of_units(tiles.output, limit.category_LM.to(device), partial(_close, full_EC.to(device)))


def _close(full_EC: Tensor, scores_ET: Tensor, category_TM: Tensor) -> None:
    for category_T in category_TM.unbind(dim=1):
        scores_ET.masked_fill_(full_EC[:, category_T], -torch.inf)


def _relevance(scores_EP: np.ndarray, is_there_EP: np.ndarray) -> np.ndarray:
    """Return the relevance of candidates, best first, float64 [E, P]; see `best_lists`."""
    high_E1 = scores_EP[:, :1].astype(np.float64)
    low_E1 = np.where(is_there_EP, scores_EP, np.inf).min(axis=1, keepdims=True).astype(np.float64)
    spread_E1 = np.where(high_E1 > low_E1, high_E1 - low_E1, 1.0)
    return np.where(is_there_EP, (np.where(is_there_EP, scores_EP, 0.0) - low_E1) / spread_E1, 0.0)


def directions(network: Network, tiles: Tiles, units: np.ndarray) -> np.ndarray:
    """Return the vectors of some units of an output, divided by their lengths, float64 [..., H].

    All processes of the network must call this with the same units, int64 [...]; -1 gives zeros.
    """
    distinct, places = np.unique(units, return_inverse=True)
    wanted, weight = torch.from_numpy(distinct).to(network.device), tiles.output.weight

    def vectors(shard: int) -> Tensor:
        own = (wanted >= 0) & (wanted % weight.shards.count == shard)
        found = torch.zeros(len(wanted), weight.columns, device=network.device)
        found[own] = weight.select(shard, wanted[own] // weight.shards.count).detach().float()
        return found

    by_shard = network.exchange.gather(network.exchange.each(vectors), "vectors of candidates")
    whole = torch.stack(by_shard).sum(dim=0).double().cpu().numpy()
    lengths = np.sqrt((whole**2).sum(axis=1, keepdims=True))
    return (whole / np.where(lengths > 0, lengths, 1.0))[places.reshape(units.shape)]
