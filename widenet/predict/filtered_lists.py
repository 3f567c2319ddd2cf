"""The k items of a list that fulfil rules together, sought among more and more of the best units."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.model.preparation import Values
from widenet.predict.filters import joined
from widenet.predict.list_rules import ListRules
from widenet.predict.logit_tiles import Tiles
from widenet.predict.top_k import Filter, Full, Only, ranked, top_k
from widenet.sparse import SparseBatch


def directions(network: Network, output_name: str, units: np.ndarray) -> np.ndarray:
    """Return the vectors of some units of an output, divided by their lengths, float64 [..., H].

    All processes of the network must call this with the same units, int64 [...]; -1 gives zeros.
    """
    distinct, places = np.unique(units, return_inverse=True)
    weight = network.wide[network.layout.links[output_name, ""].weight]
    shards, device = weight.shards, network.device
    owners = [np.flatnonzero((distinct >= 0) & (distinct % shards.count == n)) for n in range(shards.count)]
    room = max(map(len, owners))

    def vectors(shard: int) -> torch.Tensor:
        rows = torch.from_numpy(distinct[owners[shard]] // shards.count).to(device)
        found = weight.select(shard, rows).detach().float()
        return torch.nn.functional.pad(found, (0, 0, 0, room - len(rows)))

    by_shard = network.exchange.gather(network.exchange.each(vectors), "vectors of candidates")
    gathered = np.zeros((len(distinct), by_shard[0].shape[1]))
    for owned, found in zip(owners, by_shard, strict=True):
        gathered[owned] = found[: len(owned)].cpu().numpy()
    lengths = np.sqrt((gathered**2).sum(axis=1, keepdims=True))
    gathered /= np.where(lengths > 0, lengths, 1.0)
    return gathered[places.reshape(units.shape)]


_FULL_NUMBERS, _VECTOR_NUMBERS = 2**27, 2**25
"""Largest number of flags of full categories, and of numbers in vectors of candidates, at a time."""


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
        categories = [limit.category_LM.cpu().numpy() for limit in rules.limits]
        device_rules = rules.to(network.device)
        search = _Search(network, output_name, tiles, k, device_rules, categories, allowed or Filter())
        step = search.rows_at_once()
        lists = []
        for start in range(0, tiles.num, step):
            rows = torch.arange(start, min(start + step, tiles.num))
            lists.append(search.run(rows, _of(excluded, rows), _only(only, rows), _of(factors, rows)))
        scores = np.concatenate([np.zeros((0, k), np.float32), *(scores for scores, _ in lists)])
        units = np.concatenate([np.zeros((0, k), np.int64), *(units for _, units in lists)])
        return torch.from_numpy(scores), torch.from_numpy(units)


def _of(batch: SparseBatch | None, rows: Tensor) -> SparseBatch | None:
    return None if batch is None else batch.to("cpu").take(rows)


def _only(only: Only | None, rows: Tensor) -> Only | None:
    return None if only is None else Only(only.units.to("cpu").take(rows), only.listed_E[rows])


@dataclass(frozen=True)
class _Search:
    network: Network
    output_name: str
    tiles: Tiles
    k: int
    rules: ListRules
    categories: list[np.ndarray]
    allowed: Filter

    @property
    def pool(self) -> int:
        return min(self.rules.pool(self.k), self.tiles.output.width)

    def rows_at_once(self) -> int:
        """Number of examples whose flags and vectors fit into memory."""
        limits = [_FULL_NUMBERS // limit.num_categories for limit in self.rules.limits]
        if self.rules.diversity:
            limits.append(_VECTOR_NUMBERS // (self.pool * max(1, self.tiles.direct_EH.shape[1])))
        return max(1, min([self.tiles.num, *limits]))

    def run(
        self, rows: Tensor, excluded: SparseBatch | None, only: Only | None, factors: SparseBatch | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the lists of some examples: scores float32 [E, k] and units int64 [E, k]."""
        lists = _Lists.empty(len(rows), self.k)
        full = [
            Full(limit.category_LM, torch.zeros(len(rows), limit.num_categories, dtype=torch.bool))
            for limit in self.rules.limits
        ]
        pending = np.arange(len(rows))
        while len(pending):
            before = lists.number[pending]
            own = torch.from_numpy(pending)
            hidden = lists.taken(pending)
            if (seen := _of(excluded, own)) is not None:
                hidden = joined(seen, hidden)
            flags = [Full(each.category_LM, each.full_EC[own]) for each in full]
            scores_EP, units_EP = ranked(
                self.tiles.of_rows(rows[own]),
                self.pool,
                hidden,
                self.allowed,
                factors=_of(factors, own),
                only=_only(only, own),
                full=[each.to(self.network.device) for each in flags],
            )
            scores, units = scores_EP.cpu().numpy(), units_EP.cpu().numpy()
            self._pick(lists, pending, scores, units)
            self._close(full, lists, pending)
            going = (units[:, -1] >= 0) & (lists.number[pending] < self.k)
            assert (lists.number[pending] > before)[going].all(), "every round fills lists or ends them"
            pending = pending[going]
        return lists.scores, lists.units

    def _pick(self, lists: "_Lists", rows: np.ndarray, scores: np.ndarray, units: np.ndarray) -> None:
        """Append candidates [E, P] to the lists of some rows, until they are full or no candidate is open."""
        gain = _Gain.of(
            self.network, self.output_name, self.rules.diversity, scores, units, lists.units[rows]
        )
        missing = [limit.num_categories - 1 for limit in self.rules.limits]
        of_pool = [category[units] for category in self.categories]
        numbers = [
            _occurrences(pool, _categories_of(category, lists.units[rows]))
            for pool, category in zip(of_pool, self.categories, strict=True)
        ]
        is_open, every = units >= 0, np.arange(len(rows))
        while True:
            fits = is_open & (lists.number[rows] < self.k)[:, None]
            for limit, pool, number, none in zip(self.rules.limits, of_pool, numbers, missing, strict=True):
                fits &= ((number < limit.most) | (pool == none)).all(axis=2)
            going = fits.any(axis=1)
            if not going.any():
                return
            best = np.where(fits, gain.values(), -np.inf).argmax(axis=1)
            chosen = every[going], best[going]
            lists.append(rows[going], scores[chosen], units[chosen])
            is_open[chosen] = False
            for pool, number in zip(of_pool, numbers, strict=True):
                chosen_categories = np.where(going[:, None], pool[every, best], -1)
                number += _occurrences(pool, chosen_categories[:, None])
            gain.follow(best, going)

    def _close(self, full: Sequence[Full], lists: "_Lists", rows: np.ndarray) -> None:
        """Note the categories that are full in the lists of some rows."""
        for limit, category, each in zip(self.rules.limits, self.categories, full, strict=True):
            of_list = _categories_of(category, lists.units[rows])
            closed = (_occurrences(of_list, of_list) >= limit.most) & (of_list >= 0)
            closed &= of_list != limit.num_categories - 1
            examples = torch.from_numpy(rows[closed.nonzero()[0]])
            each.full_EC[examples, torch.from_numpy(of_list[closed])] = True


def _categories_of(category_LM: np.ndarray, units: np.ndarray) -> np.ndarray:
    """The categories of the units of lists [E, k], int64 [E, k, M]; -1 where a list has no unit."""
    return np.where(units[..., None] < 0, -1, category_LM[units])


def _occurrences(pool: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """How many units of a list [E, k, M] have each category of candidates [E, P, M], int64 [E, P, M]."""
    number = np.zeros(pool.shape, dtype=np.int64)
    for place in range(chosen.shape[1]):
        for one in range(chosen.shape[2]):
            number += pool == chosen[:, place, one, None, None]
    return number


@dataclass(frozen=True)
class _Lists:
    """The lists of E examples so far: scores and units [E, k], and their lengths, int64 [E]."""

    scores: np.ndarray
    units: np.ndarray
    number: np.ndarray

    @classmethod
    def empty(cls, num: int, k: int) -> "_Lists":
        scores = np.full((num, k), -np.inf, dtype=np.float32)
        return cls(scores, np.full((num, k), -1, dtype=np.int64), np.zeros(num, dtype=np.int64))

    def append(self, rows: np.ndarray, scores: np.ndarray, units: np.ndarray) -> None:
        """Append one unit to the lists of some rows."""
        places = rows, self.number[rows]
        self.scores[places], self.units[places] = scores, units
        self.number[rows] += 1

    def taken(self, rows: np.ndarray) -> SparseBatch:
        """The units in the lists of some rows."""
        return SparseBatch.from_lists([units[units >= 0].tolist() for units in self.units[rows]])


class _Gain:
    """What each candidate adds to a list, float64 [E, P]: its rank, or its marginal relevance."""

    def __init__(self, relevance: np.ndarray, diversity: float, vectors: np.ndarray | None) -> None:
        self._relevance, self._diversity, self._vectors = relevance, diversity, vectors
        self._nearest: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        network: Network,
        output_name: str,
        diversity: float,
        scores: np.ndarray,
        units: np.ndarray,
        chosen: np.ndarray,
    ) -> "_Gain":
        """Begin with candidates [E, P] and the units that are in the lists already, [E, k], or -1."""
        if not diversity:
            return cls(np.broadcast_to(-np.arange(units.shape[1], dtype=np.float64), units.shape), 0.0, None)
        present = units >= 0
        high = scores[:, :1].astype(np.float64)
        low = np.where(present, scores, np.inf).min(axis=1, keepdims=True).astype(np.float64)
        spread = np.where(high > low, high - low, 1.0)
        relevance = np.where(present, (np.where(present, scores, 0.0) - low) / spread, 0.0)
        vectors = directions(network, output_name, np.concatenate([units, chosen], axis=1))
        gain = cls(relevance, diversity, vectors[:, : units.shape[1]])
        for place in range(chosen.shape[1]):
            gain._approach(vectors[:, units.shape[1] + place], chosen[:, place] >= 0)
        return gain

    def values(self) -> np.ndarray:
        """The gain of each candidate now."""
        if self._vectors is None:
            return self._relevance
        nearest = 0.0 if self._nearest is None else np.where(np.isneginf(self._nearest), 0.0, self._nearest)
        return (1 - self._diversity) * self._relevance - self._diversity * nearest

    def follow(self, best: np.ndarray, going: np.ndarray) -> None:
        """Take in that the candidates `best` [E] were appended where `going`, bool [E]."""
        if self._vectors is not None:
            self._approach(self._vectors[np.arange(len(best)), best], going)

    def _approach(self, vectors: np.ndarray, going: np.ndarray) -> None:
        """Raise the largest cosine of each candidate to that with a unit's vector, float64 [E, H]."""
        assert self._vectors is not None
        if not going.any():
            return
        if self._nearest is None:
            self._nearest = np.full(self._relevance.shape, -np.inf)
        cosine = (self._vectors * vectors[:, None, :]).sum(axis=-1)
        np.maximum(self._nearest, np.where(going[:, None], cosine, -np.inf), out=self._nearest)
