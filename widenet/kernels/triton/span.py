"""A tile of the units of several shards, side by side, which one launch takes; and products of operands."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from widenet.kernels.table import is_interpreted

COLUMNS = 128
"""Columns that a program takes at once; every shard's columns begin at a multiple."""


@dataclass(frozen=True)
class Span:
    """The units [start, start + size) of each of S shards, as rows of a weight and as columns of a matrix.

    Attributes:
        sizes_S: Units of each shard in the tile, int32, on the device.
        num_shards: S.
        width: Columns from one shard to the next, a multiple of `COLUMNS`, at least as many as units.
        room: Rows of the weight from one shard to the next.
        start: First row of the tile in each shard.
    """

    sizes_S: Tensor
    num_shards: int
    width: int
    room: int
    start: int

    @property
    def columns(self) -> int:
        """Columns of the whole matrix, C."""
        return self.num_shards * self.width


def described(matrix: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """Return an operand as programs load it: by blocks of rows x columns, with zeros outside of the matrix.

    A GPU's copy engine loads such blocks (from Hopper on). It needs rows of a multiple of 16 bytes, and at
    least one; none count as one of zeros.

    Args:
        matrix: bfloat16 or float32, contiguous.
        rows: Rows of a block.
        columns: Columns of a block.
    """
    some = matrix if len(matrix) else matrix.new_zeros(1, matrix.shape[1])
    return TensorDescriptor.from_tensor(some, [rows, columns])


@triton.jit
def block_of(sizes, width, block, UNITS: tl.constexpr):
    """Return a block of columns: its shard, its units within the shard's tile, and which of them exist."""
    shard = block * UNITS // width
    units = block * UNITS - shard * width + tl.arange(0, UNITS)
    return shard, units, units < tl.load(sizes + shard)


@triton.jit
def quarter(tile, number: tl.constexpr):
    """Return some of a tile's columns; a program that takes them one by one has fewer numbers at work."""
    return _half(_half(tile, number // 2), number % 2)


@triton.jit
def _half(tile, number: tl.constexpr):
    parts = tl.reshape(tile, (tile.shape[0], 2, tile.shape[1] // 2))
    left, right = tl.split(tl.permute(parts, (0, 2, 1)))
    if number == 0:
        return left
    else:
        return right


@triton.jit
def add_product(total, left, right, PRECISION: tl.constexpr):
    """Return total + left @ right, float32; PRECISION is from `precision_of`."""
    if PRECISION == "interpreted":
        return tl.dot(left.to(tl.float32), right.to(tl.float32), total)
    else:
        return tl.dot(left, right, total, input_precision=PRECISION)


def precision_of(operand: Tensor) -> str:
    """Return how products take operands: bfloat16 as they are, float32 rounded to TF32.

    Triton's interpreter takes the bits of bfloat16 operands for integers, so there they are made float32.
    """
    if operand.element_size() == 4:
        return "tf32"
    return "interpreted" if is_interpreted() else "ieee"
