"""Functions of the attention kernels: a program's positions and numbers, its scores, and its gradients."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS_OF_WARP = 256
"""Numbers of each operand that a warp holds: 8 a thread."""

_MOST_POSITIONS = 32
"""Positions of a warp, where heads have few numbers."""


@dataclass(frozen=True)
class Heads:
    """The tensors that attention reads.

    Attributes:
        queries_NHC: Queries of N positions and H heads, C numbers each, float32.
        keys_NHC: Keys.
        values_NHC: Values.
        distances_THC: Vectors of the distances, or None.
        starts: First position of each of T times, and at last N; int32. See `Positions`.
        times_N: Time of each position, int32.
    """

    queries_NHC: Tensor
    keys_NHC: Tensor
    values_NHC: Tensor
    distances_THC: Tensor | None
    starts: Tensor
    times_N: Tensor

    @classmethod
    def of(
        cls,
        queries_NHC: Tensor,
        keys_NHC: Tensor,
        values_NHC: Tensor,
        distances_THC: Tensor | None,
        starts: Tensor,
        times_N: Tensor,
    ) -> "Heads":
        """Return the tensors; queries, keys and values lie alike, the numbers of a position side by side."""
        rows = [queries_NHC, keys_NHC, values_NHC]
        if {row.stride() for row in rows} != {(queries_NHC.stride(0), queries_NHC.shape[2], 1)}:
            rows = [row.clone(memory_format=torch.contiguous_format) for row in rows]
        queries_NHC, keys_NHC, values_NHC = rows
        if distances_THC is not None:
            distances_THC = distances_THC.contiguous()
        return cls(queries_NHC, keys_NHC, values_NHC, distances_THC, starts, times_N)

    def options(self, warps: int = 1) -> dict[str, int | bool]:
        """Return what all kernels take by name: sizes of the operands and of a program.

        A program has the same size for every batch, so that the bits of a position depend on no other.

        Args:
            warps: Fewest warps of a program.
        """
        _, heads, numbers = self.queries_NHC.shape
        columns = triton.next_power_of_2(numbers)
        warps = max(warps, min(columns // _NUMBERS_OF_WARP, 8))
        return {
            "HEADS": heads,
            "NUMBERS": numbers,
            "STRIDE": self.queries_NHC.stride(0),
            "POSITIONS": min(max(warps * _NUMBERS_OF_WARP // columns, 1), _MOST_POSITIONS * warps),
            "COLUMNS": columns,
            "num_warps": warps,
            "enable_fp_fusion": False,
        }


@triton.jit
def positions_of(first, num_positions, starts, times, POSITIONS: tl.constexpr):
    """Return some positions: which exist, their times, and their ranks among those of a time."""
    position = first + tl.arange(0, POSITIONS)
    exists = position < num_positions
    time = tl.load(times + position, mask=exists, other=-1)
    rank = position - tl.load(starts + time, mask=exists, other=0)
    return position, exists, time, rank


@triton.jit
def earlier_at(back, starts, time, rank):
    """Return the positions at a distance before some positions, and which of them exist."""
    exists = back <= time
    return tl.load(starts + time - back, mask=exists, other=0) + rank, exists


@triton.jit
def numbers_of(head, NUMBERS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the numbers of a head among those of a position, and which of them exist."""
    column = tl.arange(0, COLUMNS)
    return head * NUMBERS + column, column < NUMBERS


@triton.jit
def rows_of(tensor, position, exists, number, inside, STRIDE: tl.constexpr):
    """Return numbers of positions, zeros where none exist."""
    place = position.to(tl.int64)[:, None] * STRIDE + number[None, :]
    return tl.load(tensor + place, mask=exists[:, None] & inside[None, :], other=0.0)


@triton.jit
def store_rows(tensor, rows, position, exists, number, inside, STRIDE: tl.constexpr):
    """Store numbers of positions."""
    place = position.to(tl.int64)[:, None] * STRIDE + number[None, :]
    tl.store(tensor + place, rows, mask=exists[:, None] & inside[None, :])


@triton.jit
def at_distance(keys, distances, back, number, inside, STRIDE: tl.constexpr):
    """Return keys plus the vector of a distance, if there are any."""
    if distances is not None:
        keys += tl.load(distances + back * STRIDE + number, mask=inside, other=0.0)[None, :]
    return keys


@triton.jit
def scores(query, key, exists, scale):
    """Return the scores of pairs of positions, minus infinity where there is no pair."""
    return tl.where(exists, tl.sum(query * key, axis=1) * scale, float("-inf"))


@triton.jit
def sums_of(largest, totals, position, exists, head, HEADS: tl.constexpr):
    """Return the places of positions among [N, H], with the largest scores and the totals there."""
    place = position.to(tl.int64) * HEADS + head
    peak = tl.load(largest + place, mask=exists, other=0.0)
    return place, peak, tl.load(totals + place, mask=exists, other=1.0)


@triton.jit
def gradients_of(score, peak, total, mean, gradient, value, scale):
    """Return the shares of pairs of positions, and the gradients to their scores before the scaling."""
    share = tl.div_rn(tl.exp(score - peak), total)
    return share, share * (tl.sum(gradient * value, axis=1) - mean) * scale
