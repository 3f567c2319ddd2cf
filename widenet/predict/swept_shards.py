"""Ranks whole shards in compiled code, where no rule needs the scores of single tiles."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.constants import MISSING
from widenet.kernels.table import runner
from widenet.model.layers.output import QuantizedTile
from widenet.model.row_sum import RowSum, of_softmax
from widenet.model.sharding import split
from widenet.model.sweep import groups, in_turn
from widenet.plan.shards import as_slice
from widenet.plan.tiles import PREDICTED_COLUMNS
from widenet.predict.logit_tiles import Tiles
from widenet.sparse import SparseBatch

if TYPE_CHECKING:
    from widenet.kernels.compiled_quantized import Queries
    from widenet.kernels.compiled_ranking import Sums
    from widenet.kernels.compiled_search import RunningTopK


def is_sweepable(tiles: Tiles, divides: bool) -> bool:
    """Return whether `SweptShards` can rank the units of an output.

    Args:
        tiles: The output's tiles.
        divides: Whether the scores have a divisor.
    """
    output, device = tiles.output, tiles.direct_EH.device
    if not tiles.multiplies or output.adds_terms:
        return False
    if divides and tiles.activation.kind != "softmax":
        return False
    if runner("ranking", device, tiles.num * output.width) != "numba":
        return False
    if output.weight.in_8_bits:
        from widenet.kernels.compiled_quantized import multiplies_bytes

        return multiplies_bytes()
    from widenet.kernels.native import product_routine

    return product_routine() != 0


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
        self.tiles, self.k, self.banned_L, self.divides = tiles, k, banned_L, divides
        self.direct_EH = tiles.direct_EH.contiguous()
        self.queries = _queries(self.direct_EH) if tiles.output.weight.in_8_bits else None
        self.excluded = None if excluded is None else split(_ascending(excluded), tiles.shards)
        self.floor_E = torch.full((tiles.num,), -torch.inf)
        self._idle: list[RunningTopK] = []

    def best(self) -> list[tuple[Tensor, RowSum]]:
        """Return keys int64 [E, k] and a sum for every shard of this process.

        All keys together hold the best units of all these shards.
        """
        with in_turn(self.tiles.output.weight.parts.values(), False):
            parts = self.tiles.output.exchange.each(self._sweep)
        found = [search.result() for search in self._idle]
        missing = [torch.full((self.tiles.num, self.k), MISSING)] * (len(parts) - len(found))
        if self.divides:
            sums = of_softmax(parts)
        else:
            sums = [self.tiles.no_sum(slice(0, self.tiles.num))] * len(parts)
        return list(zip([*found, *missing], sums, strict=True))

    def _sweep(self, shard: int) -> "Sums":
        """Search the units of a shard, and return the sums of its tiles if there is a divisor."""
        from widenet.kernels.compiled_ranking import NO_SUMS
        from widenet.kernels.compiled_search import RunningTopK

        tiles, output = self.tiles, self.tiles.output
        try:
            search = self._idle.pop()
        except IndexError:
            search = RunningTopK(self.k, self.floor_E)
        starts = [start for start, _ in tiles.cut(shard)] + [tiles.shards.size(shard)]
        shape = len(starts) - 1, tiles.num
        sums = (np.empty(shape, np.float32), np.empty(shape, np.float64)) if self.divides else NO_SUMS
        with output.weight.parts[shard].sweep(updates=False) as sweep:
            is_plain = output.spec.cosine is None and not output.weight.in_8_bits
            is_whole = is_plain or self.queries is not None
            rows = sweep.chunk_rows if is_whole else 1
            for first, last in groups(starts, rows):
                sweep.at(starts[first], starts[last])
                own = sums[0][first:last], sums[1][first:last]
                self._rank(shard, starts[first : last + 1], search, own)
        self._idle.append(search)
        return sums

    def _rank(self, shard: int, starts: list[int], search: "RunningTopK", sums: "Sums") -> None:
        """Rank the units of some tiles of a shard, which begin at `starts` and end at the last of them."""
        from widenet.kernels.compiled_ranking import Units, rank

        first, stop, output = starts[0], starts[-1], self.tiles.output
        tile, numbers = output.tile(shard, first, stop), self.tiles.shards.units(shard)
        ends_E = rows_Z = barred_R = None
        if self.excluded is not None:
            ends_E, rows_Z = self.excluded[shard].indptr, self.excluded[shard].indices.long()
        if self.banned_L is not None:
            barred_R = self.banned_L[as_slice(numbers)].contiguous()
        places = [start - first for start in starts]
        units = Units(tile.operand, tile.bias_T, places, numbers[first:stop], first, ends_E, rows_Z, barred_R)
        if self.queries is None:
            rank(self.direct_EH, self.tiles.rows, PREDICTED_COLUMNS, units, search, sums)
            return
        from widenet.kernels.compiled_quantized import rank_quantized

        assert isinstance(tile, QuantizedTile)
        rank_quantized(self.queries, units, tile.factor_T, search, sums)


def _queries(direct_EH: Tensor) -> "Queries":
    from widenet.kernels.compiled_quantized import Queries

    return Queries.of(direct_EH)


def _ascending(batch: SparseBatch) -> SparseBatch:
    """Return a batch with the entries of every example in ascending order, without values."""
    example_Z, unit_Z = batch.example_of_entry(), batch.indices.long()
    behind_Z = (example_Z[1:] == example_Z[:-1]) & (unit_Z[1:] < unit_Z[:-1])
    if bool(behind_Z.any()):
        unit_Z = unit_Z[torch.from_numpy(np.lexsort((unit_Z.numpy(), example_Z.numpy())))]
    return SparseBatch(batch.indptr, unit_Z)
