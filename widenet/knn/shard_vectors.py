"""The vectors of one shard: their float32 products with queries, and their exact nearness."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels import best_units
from widenet.kernels.running_top_k import running_top_k
from widenet.kernels.table import runner
from widenet.knn.measures import Measure, lengths, nearness
from widenet.plan.tiles import searched_tiles

_BLOCK_NUMBERS = 2**22
"""Numbers of vectors that are converted to float64 at once."""


class Part:
    """The vectors of one shard.

    Attributes:
        measure: The measure of nearness.
        positions: Positions of the vectors.
        vectors_ND: The vectors as they are stored, finite, [N, D].
        extent: The largest length, and the smallest above 0, float64 [2].
        offset_N: For "l2": minus half the squared lengths, float32.
        factor_N: For "cosine": one over the lengths, float32; 0 for a vector of length 0.
    """

    def __init__(self, measure: Measure, positions: range, vectors_ND: Tensor) -> None:
        self.measure, self.positions, self.vectors_ND = measure, positions, vectors_ND
        rows = max(1, _BLOCK_NUMBERS // vectors_ND.shape[1])
        length_N = torch.cat([lengths(block) for block in torch.split(vectors_ND, rows)])
        above_N = torch.where(length_N > 0, length_N, torch.inf)
        ends = pad(length_N, (0, 1)).amax(dim=0), pad(above_N, (0, 1), value=torch.inf).amin(dim=0)
        self.extent = torch.stack(ends)
        self.offset_N = (-0.5 * length_N.square()).float() if measure == "l2" else None
        self.factor_N = (1 / above_N).float() if measure == "cosine" else None

    def rows(self, positions_P: Tensor) -> Tensor:
        """The vectors at some positions, float32 [P, D]; zeros for those of other shards."""
        rows_PD = torch.zeros(len(positions_P), self.vectors_ND.shape[1], device=positions_P.device)
        own_P = self._has(positions_P)
        rows_PD[own_P] = self._vectors(positions_P[own_P]).float()
        return rows_PD

    def _has(self, positions: Tensor) -> Tensor:
        first, step = self.positions.start, self.positions.step
        is_between = (positions >= first) & (positions < self.positions.stop)
        return is_between & ((positions - first) % step == 0)

    def _vectors(self, positions_P: Tensor) -> Tensor:
        """The vectors at some positions of this shard, [P, D]."""
        return self.vectors_ND[(positions_P - self.positions.start) // self.positions.step]

    def products(self, direct_ED: Tensor, start: int, stop: int) -> Tensor:
        """Products of queries with a tile of vectors, float32 [E, stop - start]; larger is nearer.

        For "l2", the product minus half the squared length of the vector.
        """
        tile_TD = self.vectors_ND[start:stop].float()
        if self.offset_N is not None:
            return torch.addmm(self.offset_N[start:stop], direct_ED, tile_TD.T)
        product_ET = direct_ED @ tile_TD.T
        return product_ET if self.factor_N is None else product_ET.mul_(self.factor_N[start:stop])

    def best(self, direct_ED: Tensor, number: int, floor_E: Tensor) -> Tensor:
        """The keys of the positions with the largest products, int64 [E, number]; see `running_top_k`."""
        tiles = searched_tiles(len(self.vectors_ND), len(direct_ED), direct_ED.device.type)
        if runner("ranking", direct_ED.device) == "native":
            query, search = best_units.Query.of(direct_ED), best_units.RunningTopK(number, floor_E)
            for start, stop in tiles:
                best_units.rank(query, [self._units(start, stop)], [search])
            return search.result()
        running = running_top_k(number, floor_E)
        for start, stop in tiles:
            running.add(self.products(direct_ED, start, stop), self.positions[start:stop])
        return running.result()

    def _units(self, start: int, stop: int) -> best_units.Units:
        """A tile of vectors, for the native library; see `products`."""
        factor_T, offset_T = (
            None if each is None else each[start:stop] for each in (self.factor_N, self.offset_N)
        )
        vector_TD = self.vectors_ND[start:stop].float()
        return best_units.Units(vector_TD, self.positions[start:stop], factor_T, offset_T)

    def nearness(self, queries_ED: Tensor, positions_EC: Tensor) -> Tensor:
        """Exact nearness of the candidates in this shard, float64 [E, C]; -inf for those of other shards."""
        nearness_EC = torch.full(
            positions_EC.shape, -torch.inf, dtype=torch.float64, device=positions_EC.device
        )
        rows_P, columns_P = self._has(positions_EC).nonzero().unbind(1)
        step = max(1, _BLOCK_NUMBERS // queries_ED.shape[1])
        for row_P, column_P in zip(torch.split(rows_P, step), torch.split(columns_P, step), strict=True):
            vectors_PD = self._vectors(positions_EC[row_P, column_P])
            nearness_EC[row_P, column_P] = nearness(self.measure, queries_ED[row_P], vectors_PD)
        return nearness_EC
