"""A shard of a wide weight of which only some numbers are stored, for models that are no longer trained."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from widenet.kernels import gather_sum, roomy
from widenet.kernels.pruned import column_type, pruned, widened
from widenet.model.operands import SHORTEST
from widenet.model.part import Part
from widenet.sparse import SparseBatch

_BLOCK_NUMBERS = 2**21


@dataclass
class PrunedPart(Part):
    """One shard of a wide weight: the k largest numbers of each row, and their columns.

    Attributes:
        weight: The numbers, float32 [R, k].
        column_RK: Their columns, uint8 or int16, ascending in each row.
        width: H.
    """

    format_version: ClassVar[int] = 4
    is_pruned: ClassVar[bool] = True
    makes_copies: ClassVar[bool] = True
    column_RK: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    width: int = 0

    @classmethod
    def blank(cls, rows: int, columns: int, k: int) -> "PrunedPart":
        """Return zeros, all in the first column."""
        return cls(roomy((rows, k)), column_RK=roomy((rows, k), column_type(columns)), width=columns)

    @classmethod
    def of(cls, part: Part, k: int) -> "PrunedPart":
        """Return a shard with the k largest numbers of each row."""
        made, start = cls.blank(len(part.weight), part.columns, k), 0
        for block_RH in part.blocks():
            own = slice(start, start + len(block_RH))
            made.column_RK[own], made.weight[own] = pruned(block_RH, k)
            start = own.stop
        return made

    @property
    def is_sound(self) -> bool:
        """See `Part.is_sound`: the columns of each row ascend, and all are of the vector."""
        for column_BK in torch.split(self.column_RK, max(1, _BLOCK_NUMBERS // self.column_RK.shape[1])):
            place_BK = column_BK.int()
            ascend = (place_BK[:, 1:] > place_BK[:, :-1]).all()
            if not (ascend and (place_BK >= 0).all() and (place_BK < self.width).all()):
                return False
        return True

    @property
    def columns(self) -> int:
        """See `Part.columns`."""
        return self.width

    @cached_property
    def factors(self) -> Tensor:
        """What the numbers of each row are multiplied by: 1, float32 [R]."""
        return torch.ones(len(self.weight))

    @cached_property
    def for_directions(self) -> Tensor:
        """What the numbers of each row are multiplied by for a vector of length 1, float32 [R].

        It is 0 for rows without a direction.
        """
        length_R = self.weight.norm(dim=1)
        return torch.where(length_R <= SHORTEST, 0.0, 1 / length_R)

    def rows(self, start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the rows [start, stop) with all their numbers, and no state."""
        return widened(self.column_RK[start:stop], self.weight[start:stop], self.width), {}

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the rows with all their numbers, in blocks."""
        assert not updates, "a pruned weight is not trained"
        step = rows or max(1, _BLOCK_NUMBERS // self.width)
        for start in range(0, len(self.weight), step):
            yield self.rows(start, start + step)[0]

    def gathered(self, batch: SparseBatch) -> Tensor:
        """See `Part.gathered`; only rows that the batch has get all their numbers."""
        features_U, indices_Z = torch.unique(batch.indices, return_inverse=True)
        column_UK, value_UK = (tensor.index_select(0, features_U) for tensor in (self.column_RK, self.weight))
        rows_UH = widened(column_UK, value_UK, self.width)
        return gather_sum(SparseBatch(batch.indptr, indices_Z, batch.values), rows_UH)

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        return {"weight": self.weight, "column": self.column_RK}
