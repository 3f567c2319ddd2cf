"""Shards of wide weights in 8 bits, for models that are used and no longer trained."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from widenet.kernels.bags import gather_sum, roomy
from widenet.kernels.best_units import MOST_COLUMNS, dequantized, quantized
from widenet.model.operands import SHORTEST
from widenet.model.weight import Part
from widenet.plan.layout import Weight
from widenet.sparse import SparseBatch

_BLOCK_NUMBERS = 2**21


@dataclass
class QuantizedPart(Part):
    """One shard of a wide weight: whole numbers in 8 bits, and a scale for each row.

    Attributes:
        weight: The whole numbers, int8 [R, H].
        scale_R: The scales, float32. Row r is `scale_R[r] * weight[r]`, which float32 holds exactly.
    """

    in_8_bits: ClassVar[bool] = True
    scale_R: Tensor = field(default_factory=lambda: torch.zeros(0))

    @classmethod
    def blank(cls, rows: int, columns: int) -> "QuantizedPart":
        """Return zeros."""
        return cls(roomy((rows, columns), torch.int8), scale_R=roomy((rows,)))

    @classmethod
    def of(cls, part: Part) -> "QuantizedPart":
        """Return a shard in 8 bits; see `quantized`."""
        made, start = cls.blank(*part.weight.shape), 0
        for block_RH in part.blocks():
            own = slice(start, start + len(block_RH))
            made.weight[own], made.scale_R[own] = quantized(block_RH)
            start = own.stop
        return made

    @cached_property
    def for_directions(self) -> Tensor:
        """What the whole numbers of each row are multiplied by for a vector of length 1, float32 [R].

        It is 0 for rows without a direction.
        """
        blocks = zip(
            torch.split(self.weight, self._block), torch.split(self.scale_R, self._block), strict=True
        )
        return torch.cat([directions(whole_RH, scale_R) for whole_RH, scale_R in blocks])

    def rows(self, start: int, stop: int) -> Part:
        """Return the rows [start, stop) in float32, and no state."""
        return Part(dequantized(self.weight[start:stop], self.scale_R[start:stop]))

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the rows in float32, in blocks."""
        assert not updates, "a weight in 8 bits is not trained"
        step = rows or self._block
        for start in range(0, len(self.weight), step):
            yield self.rows(start, start + step).weight

    def gathered(self, batch: SparseBatch) -> Tensor:
        """See `Part.gathered`; only rows that the batch has become float32."""
        features_U, indices_Z = torch.unique(batch.indices, return_inverse=True)
        rows_UH = dequantized(
            self.weight.index_select(0, features_U), self.scale_R.index_select(0, features_U)
        )
        return gather_sum(SparseBatch(batch.indptr, indices_Z, batch.values), rows_UH)

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        return {"weight": self.weight, "scale": self.scale_R}

    @property
    def _block(self) -> int:
        return max(1, _BLOCK_NUMBERS // max(self.weight.shape[1], 1))


def directions(whole_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return what whole numbers are multiplied by, float32 [R]; see `QuantizedPart.for_directions`."""
    length_R = whole_RH.int().square().sum(dim=1).double().sqrt_()
    return torch.where(length_R * scale_R <= SHORTEST, 0.0, 1 / length_R).float()


def fits_in_8_bits(weight: Weight) -> bool:
    """Return whether a weight is a matrix whose rows are gathered or multiplied by whole."""
    is_matrix = weight.wide and not weight.split and not weight.by_columns
    return is_matrix and 0 < (weight.columns or 0) <= MOST_COLUMNS


def quantized_row_bytes(columns: int) -> int:
    """Return the bytes of a row in 8 bits, and of its scale, as files hold them."""
    return columns + 4
