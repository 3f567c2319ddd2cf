"""What positions read along their sequences, and its gradients: a program takes positions of one head."""

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


@triton.jit
def _attention_queries_kernel(
    queries,
    keys,
    values,
    distances,
    starts,
    times,
    read,
    largest,
    totals,
    gradients,
    to_queries,
    means,
    num_positions,
    scale,
    HEADS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    head = tl.program_id(1)
    number, inside = numbers_of(head, NUMBERS, COLUMNS)
    position, exists, time, rank = positions_of(
        tl.program_id(0) * POSITIONS, num_positions, starts, times, POSITIONS
    )
    place, peak, total = sums_of(largest, totals, position, exists, head, HEADS)
    query = rows_of(queries, position, exists, number, inside, STRIDE)
    gradient = rows_of(gradients, position, exists, number, inside, HEADS * NUMBERS)
    mean = tl.sum(gradient * rows_of(read, position, exists, number, inside, HEADS * NUMBERS), axis=1)
    tl.store(means + place, mean, mask=exists)
    result = tl.zeros((POSITIONS, COLUMNS), tl.float32)
    for back in tl.range(0, tl.max(time, axis=0) + 1, loop_unroll_factor=2):
        earlier, reads = earlier_at(back, starts, time, rank)
        key = rows_of(keys, earlier, reads, number, inside, STRIDE)
        key = at_distance(key, distances, back, number, inside, HEADS * NUMBERS)
        value = rows_of(values, earlier, reads, number, inside, STRIDE)
        score = scores(query, key, reads, scale)
        _, to_score = gradients_of(score, peak, total, mean, gradient, value, scale)
        result += to_score[:, None] * key
    store_rows(to_queries, result, position, exists, number, inside, HEADS * NUMBERS)


def attention_queries(
    heads: Heads, read_NHC: Tensor, largest_NH: Tensor, total_NH: Tensor, gradient_NHC: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient to the queries [N, H, C], and the mean gradient to a position's shares [N, H].

    Each position adds from itself to its oldest one.

    Args:
        heads: What attention reads.
        read_NHC: What was read.
        largest_NH: Largest scores.
        total_NH: Totals; see `attention`.
        gradient_NHC: Gradient to what was read, contiguous.
    """
    to_queries_NHC, mean_NH = torch.empty_like(read_NHC), torch.empty_like(total_NH)
    if read_NHC.numel():
        options = heads.options()
        _attention_queries_kernel[triton.cdiv(len(read_NHC), options["POSITIONS"]), read_NHC.shape[1]](
            heads.queries_NHC,  # [N, H, C] float32
            heads.keys_NHC,  # [N, H, C] float32
            heads.values_NHC,  # [N, H, C] float32
            heads.distances_THC,  # [T, H, C] float32, or None
            heads.starts,  # [T + 1] int32
            heads.times_N,  # [N] int32
            read_NHC,  # [N, H, C] float32
            largest_NH,  # [N, H] float32
            total_NH,  # [N, H] float32
            gradient_NHC,  # [N, H, C] float32
            to_queries_NHC,  # [N, H, C] float32, out
            mean_NH,  # [N, H] float32, out
            len(read_NHC),
            read_NHC.shape[2] ** -0.5,
            **options,
        )
    return to_queries_NHC, mean_NH


@triton.jit
def _attention_keys_kernel(
    queries,
    keys,
    values,
    distances,
    starts,
    times,
    largest,
    totals,
    means,
    gradients,
    to_keys,
    to_values,
    num_positions,
    num_times,
    scale,
    HEADS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    head = tl.program_id(1)
    number, inside = numbers_of(head, NUMBERS, COLUMNS)
    position, exists, time, rank = positions_of(
        tl.program_id(0) * POSITIONS, num_positions, starts, times, POSITIONS
    )
    key = rows_of(keys, position, exists, number, inside, STRIDE)
    value = rows_of(values, position, exists, number, inside, STRIDE)
    to_key = tl.zeros((POSITIONS, COLUMNS), tl.float32)
    to_value = tl.zeros((POSITIONS, COLUMNS), tl.float32)
    back = 0
    later, reads = position, exists
    while tl.max(reads.to(tl.int32), axis=0) > 0:
        place, peak, total = sums_of(largest, totals, later, reads, head, HEADS)
        mean = tl.load(means + place, mask=reads, other=0.0)
        query = rows_of(queries, later, reads, number, inside, STRIDE)
        gradient = rows_of(gradients, later, reads, number, inside, HEADS * NUMBERS)
        score = scores(
            query, at_distance(key, distances, back, number, inside, HEADS * NUMBERS), reads, scale
        )
        share, to_score = gradients_of(score, peak, total, mean, gradient, value, scale)
        to_key += to_score[:, None] * query
        to_value += share[:, None] * gradient
        back += 1
        # The sequences of a time are those of the time before but for its last ones, which have ended.
        reads &= time + back < num_times
        later = tl.load(starts + time + back, mask=reads, other=0) + rank
        reads &= later < tl.load(starts + time + back + 1, mask=reads, other=0)
    store_rows(to_keys, to_key, position, exists, number, inside, HEADS * NUMBERS)
    store_rows(to_values, to_value, position, exists, number, inside, HEADS * NUMBERS)


def attention_keys(
    heads: Heads, largest_NH: Tensor, total_NH: Tensor, mean_NH: Tensor, gradient_NHC: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients to the keys and to the values, [N, H, C].

    Each position adds from itself to the newest one that reads it.

    Args:
        heads: What attention reads.
        largest_NH: Largest scores.
        total_NH: Totals; see `attention`.
        mean_NH: Mean gradients; see `attention_queries`.
        gradient_NHC: Gradient to what was read, contiguous.
    """
    to_keys_NHC, to_values_NHC = torch.empty_like(gradient_NHC), torch.empty_like(gradient_NHC)
    if gradient_NHC.numel():
        options = heads.options()
        _attention_keys_kernel[triton.cdiv(len(gradient_NHC), options["POSITIONS"]), gradient_NHC.shape[1]](
            heads.queries_NHC,  # [N, H, C] float32
            heads.keys_NHC,  # [N, H, C] float32
            heads.values_NHC,  # [N, H, C] float32
            heads.distances_THC,  # [T, H, C] float32, or None
            heads.starts,  # [T + 1] int32
            heads.times_N,  # [N] int32
            largest_NH,  # [N, H] float32
            total_NH,  # [N, H] float32
            mean_NH,  # [N, H] float32
            gradient_NHC,  # [N, H, C] float32
            to_keys_NHC,  # [N, H, C] float32, out
            to_values_NHC,  # [N, H, C] float32, out
            len(gradient_NHC),
            len(heads.starts) - 1,
            gradient_NHC.shape[2] ** -0.5,
            **options,
        )
    return to_keys_NHC, to_values_NHC


_PART = 256
"""Positions that a program adds."""


@triton.jit
def _attention_distances_kernel(
    queries,
    keys,
    values,
    distances,
    starts,
    times,
    largest,
    totals,
    means,
    gradients,
    parts,
    num_positions,
    num_times,
    scale,
    PART: tl.constexpr,
    HEADS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    tl.static_assert(PART % POSITIONS == 0)
    part, back, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    number, inside = numbers_of(head, NUMBERS, COLUMNS)
    # All positions from here on have one at this distance.
    first = tl.load(starts + back) + part * PART
    result = tl.zeros((POSITIONS, COLUMNS), tl.float32)
    for start in range(first, tl.minimum(first + PART, num_positions), POSITIONS):
        position, _, time, rank = positions_of(start, num_positions, starts, times, POSITIONS)
        earlier, reads = earlier_at(back, starts, time, rank)
        place, peak, total = sums_of(largest, totals, position, reads, head, HEADS)
        mean = tl.load(means + place, mask=reads, other=0.0)
        query = rows_of(queries, position, reads, number, inside, STRIDE)
        key = rows_of(keys, earlier, reads, number, inside, STRIDE)
        key = at_distance(key, distances, back, number, inside, HEADS * NUMBERS)
        value = rows_of(values, earlier, reads, number, inside, STRIDE)
        gradient = rows_of(gradients, position, reads, number, inside, HEADS * NUMBERS)
        score = scores(query, key, reads, scale)
        _, to_score = gradients_of(score, peak, total, mean, gradient, value, scale)
        result += to_score[:, None] * query
    row = parts + (part.to(tl.int64) * num_times + back) * HEADS * NUMBERS
    tl.store(row + number, tl.sum(result, axis=0), mask=inside)


def attention_distances(
    heads: Heads, largest_NH: Tensor, total_NH: Tensor, mean_NH: Tensor, gradient_NHC: Tensor
) -> Tensor:
    """Return the gradient to the vectors of the distances, [T, H, C].

    The order of addition is within parts of 256 positions, then over the parts.

    Args:
        heads: What attention reads.
        largest_NH: Largest scores.
        total_NH: Totals; see `attention`.
        mean_NH: Mean gradients; see `attention_queries`.
        gradient_NHC: Gradient to what was read, contiguous.
    """
    (num, *shape), num_times = gradient_NHC.shape, len(heads.starts) - 1
    parts_RTHC = torch.empty(triton.cdiv(num, _PART), num_times, *shape, device=gradient_NHC.device)
    if parts_RTHC.numel():
        _attention_distances_kernel[len(parts_RTHC), num_times, shape[0]](
            heads.queries_NHC,  # [N, H, C] float32
            heads.keys_NHC,  # [N, H, C] float32
            heads.values_NHC,  # [N, H, C] float32
            heads.distances_THC,  # [T, H, C] float32
            heads.starts,  # [T + 1] int32
            heads.times_N,  # [N] int32
            largest_NH,  # [N, H] float32
            total_NH,  # [N, H] float32
            mean_NH,  # [N, H] float32
            gradient_NHC,  # [N, H, C] float32
            parts_RTHC,  # [R, T, H, C] float32, out: R parts of the positions
            num,
            num_times,
            shape[1] ** -0.5,
            PART=_PART,
            **heads.options(warps=4),
        )
    return parts_RTHC.sum(dim=0)


@triton.jit
def _attention_kernel(
    queries,
    keys,
    values,
    distances,
    starts,
    times,
    read,
    largest,
    totals,
    num_positions,
    scale,
    HEADS: tl.constexpr,
    NUMBERS: tl.constexpr,
    STRIDE: tl.constexpr,
    POSITIONS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    head = tl.program_id(1)
    number, inside = numbers_of(head, NUMBERS, COLUMNS)
    position, exists, time, rank = positions_of(
        tl.program_id(0) * POSITIONS, num_positions, starts, times, POSITIONS
    )
    query = rows_of(queries, position, exists, number, inside, STRIDE)
    oldest = tl.max(time, axis=0) + 1
    peak = tl.full((POSITIONS,), float("-inf"), tl.float32)
    for back in tl.range(0, oldest, loop_unroll_factor=2):
        earlier, reads = earlier_at(back, starts, time, rank)
        key = rows_of(keys, earlier, reads, number, inside, STRIDE)
        key = at_distance(key, distances, back, number, inside, HEADS * NUMBERS)
        peak = tl.maximum(peak, scores(query, key, reads, scale))
    peak = tl.where(exists, peak, 0.0)
    total = tl.zeros((POSITIONS,), tl.float32)
    result = tl.zeros((POSITIONS, COLUMNS), tl.float32)
    for back in tl.range(0, oldest, loop_unroll_factor=2):
        earlier, reads = earlier_at(back, starts, time, rank)
        key = rows_of(keys, earlier, reads, number, inside, STRIDE)
        key = at_distance(key, distances, back, number, inside, HEADS * NUMBERS)
        share = tl.exp(scores(query, key, reads, scale) - peak)
        total += share
        result += share[:, None] * rows_of(values, earlier, reads, number, inside, STRIDE)
    total = tl.where(exists, total, 1.0)
    result = tl.div_rn(result, total[:, None])
    store_rows(read, result, position, exists, number, inside, HEADS * NUMBERS)
    place = position.to(tl.int64) * HEADS + head
    tl.store(largest + place, peak, mask=exists)
    tl.store(totals + place, total, mask=exists)


def attention(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Return what each position and head reads [N, H, C], its largest score, and its total [N, H].

    The total is that of exp(score - largest). Each position adds from itself to its oldest one, and divides
    the sum of the values by the total.
    """
    queries_NHC = heads.queries_NHC
    read_NHC = torch.empty(queries_NHC.shape, device=queries_NHC.device)
    largest_NH, total_NH = torch.empty(2, *queries_NHC.shape[:2], device=queries_NHC.device)
    if read_NHC.numel():
        options = heads.options()
        grid = triton.cdiv(len(queries_NHC), options["POSITIONS"]), queries_NHC.shape[1]
        _attention_kernel[grid](
            queries_NHC,  # [N, H, C] float32
            heads.keys_NHC,  # [N, H, C] float32
            heads.values_NHC,  # [N, H, C] float32
            heads.distances_THC,  # [T, H, C] float32, or None
            heads.starts,  # [T + 1] int32
            heads.times_N,  # [N] int32
            read_NHC,  # [N, H, C] float32, out
            largest_NH,  # [N, H] float32, out
            total_NH,  # [N, H] float32, out
            len(queries_NHC),
            queries_NHC.shape[2] ** -0.5,
            **options,
        )
    return read_NHC, largest_NH, total_NH
