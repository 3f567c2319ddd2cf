"""Ranks whole shards natively, where no rule needs the scores of single tiles."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.best_units import MISSING, RunningTopK, Units, rank
from widenet.model.output_step import RowSum
from widenet.model.sweep import groups, in_turn
from widenet.predict.logit_tiles import Tiles
from widenet.sparse import SparseBatch


def is_sweepable(tiles: Tiles, divides: bool) -> bool:
    """Return whether `SweptShards` can rank the units of an output.

    Args:
        tiles: The output's tiles.
        divides: Whether the scores have a divisor.
    """
    if tiles.query is None or tiles.output.spec.term is not None:
        return False
    return not divides or tiles.activation.kind == "softmax"


class SweptShards:
    """Finds the k largest logits over this process's shards, and the divisors of a softmax.

    A thread takes its search from shard to shard, because few units of a later shard exceed the best so far.

    Args:
        tiles: The output's tiles, for which `is_sweepable`.
        k: Number of units.
        excluded: Units to leave out, example by example.
        banned_L: Units that no one is shown.
        divides: Whether to sum up the divisors.
    """

    def __init__(
        self, tiles: Tiles, k: int, excluded: SparseBatch | None, banned_L: Tensor | None, divides: bool
    ) -> None:
        assert tiles.query is not None
        self.tiles, self.k, self.divides = tiles, k, divides
        self.query = replace(tiles.query, barred_L=banned_L)
        if excluded is not None:
            excluded = _ascending(excluded)
            self.query = replace(self.query, end_E=excluded.indptr, unit_Z=excluded.indices)
        self.floor_E = torch.full((tiles.num,), -torch.inf)
        self.sums = {shard: tiles.no_sum(slice(0, tiles.num)) for shard in tiles.output.weight.parts}

    def best(self) -> list[tuple[Tensor, RowSum]]:
        """Return keys int64 [E, k] and a sum for every shard of this process.

        All keys together hold the best units of all these shards.
        """
        weight, exchange = self.tiles.output.weight, self.tiles.output.exchange
        if weight.in_files:
            searches: list[RunningTopK] = []
            with in_turn(weight.parts.values(), False):
                exchange.each(lambda shard: self._from_file(shard, searches))
        else:
            num = min(exchange.num_threads, len(self.sums))
            searches = [RunningTopK(self.k, self.floor_E) for _ in range(num)]
            size = self.tiles.shards.size
            rank(self.query, [self._units(shard, 0, size(shard)) for shard in self.sums], searches)
        found = [search.result() for search in searches]
        missing = [torch.full((self.tiles.num, self.k), MISSING)] * (len(self.sums) - len(found))
        return list(zip([*found, *missing], self.sums.values(), strict=True))

    def _from_file(self, shard: int, idle: list[RunningTopK]) -> None:
        """Search the units of a shard, as they are read; the searches that no thread uses are in `idle`."""
        size = self.tiles.shards.size(shard)
        try:
            search = idle.pop()
        except IndexError:
            search = RunningTopK(self.k, self.floor_E)
        starts = [start for start, _ in self.tiles.cut(shard)] + [size]
        with self.tiles.output.weight.parts[shard].sweep(updates=False) as sweep:
            for first, last in groups(starts, sweep.chunk_rows):
                sweep.at(starts[first], starts[last])
                rank(self.query, [self._units(shard, starts[first], starts[last])], [search])
        idle.append(search)

    def _units(self, shard: int, start: int, stop: int) -> Units:
        """Return the units [start, stop) of a shard, with their sum if there is one."""
        own = self.sums[shard]
        return self.tiles.units(shard, start, stop, *((own.peak_E, own.sum_E) if self.divides else ()))


def _ascending(batch: SparseBatch) -> SparseBatch:
    """Return a batch with the entries of every example in ascending order, without values."""
    example_Z, unit_Z = batch.example_of_entry(), batch.indices.long()
    behind_Z = (example_Z[1:] == example_Z[:-1]) & (unit_Z[1:] < unit_Z[:-1])
    if bool(behind_Z.any()):
        unit_Z = unit_Z[torch.from_numpy(np.lexsort((unit_Z.numpy(), example_Z.numpy())))]
    return SparseBatch(batch.indptr, unit_Z)
