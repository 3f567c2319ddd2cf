"""What positions read along their sequences: each program takes some positions of one head."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.attention_part import (
    Heads,
    at_distance,
    earlier_at,
    numbers_of,
    positions_of,
    rows_of,
    scores,
    store_rows,
)


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
