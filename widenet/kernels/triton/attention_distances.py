"""The gradient of attention to the vectors of distances: a program takes one of them and some positions."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.attention_part import (
    Heads,
    at_distance,
    earlier_at,
    gradients_of,
    numbers_of,
    positions_of,
    rows_of,
    scores,
    sums_of,
)

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
