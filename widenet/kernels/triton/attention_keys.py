"""The gradients of attention to the keys and values: each program takes some positions of one head."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.attention_part import (
    Heads,
    at_distance,
    gradients_of,
    numbers_of,
    positions_of,
    rows_of,
    scores,
    store_rows,
    sums_of,
)


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
