"""The gradient of attention to the queries: each program takes some positions of one head."""

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
    store_rows,
    sums_of,
)


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
