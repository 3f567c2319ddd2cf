"""A wide output's numbers between its products, in one launch for all shards of a tile.

Torch would pass over the logits six times and make fifteen launches. Not measured: written without a device.
A program takes one example in one shard. Shards that have a unit less than others have all of a tile's
columns, of which the last one takes no part.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_AT_ONCE = 1024
"""Numbers of an example that a program has at hand."""


@dataclass(frozen=True)
class TileTargets:
    """The targets of a batch, and where a tile of several shards lies among them.

    Attributes:
        indptr: The first target of each example, shard by shard from the tile's first one on, int64.
        rows_Z: Their units as rows of all shards, int64.
        origin: The row of the tile's first unit.
        room: Rows from one shard to the next.
        num_full: How many of the tile's shards have units for all columns; others have one less.
    """

    indptr: Tensor
    rows_Z: Tensor
    origin: int
    room: int
    num_full: int

    def given(self) -> tuple[Any, ...]:
        """Return what every kernel here takes."""
        return self.indptr, self.rows_Z, self.origin, self.room


@triton.jit
def _first(indptr, origin, room, num_examples):
    """Return the program's row of the tile, its first target and the end of them, and its shard's origin."""
    shard = tl.program_id(1).to(tl.int64)
    row = shard * num_examples + tl.program_id(0)
    return row, tl.load(indptr + row), tl.load(indptr + row + 1), origin + shard * room


@triton.jit
def _logit(logits, bias, row, units, is_unit, num_units, bias_stride):
    logit = tl.load(logits + row * num_units + units, is_unit, 0.0)
    if bias is not None:
        logit += tl.load(bias + tl.program_id(1).to(tl.int64) * bias_stride + units, is_unit, 0.0)
    return logit


@triton.jit
def _shares_kernel(
    logits,
    bias,
    shares,
    peaks,
    totals,
    hidden,
    peaks_of_tile,
    target_logits,
    indptr,
    targets,
    origin,
    room,
    num_full,
    bias_stride,
    num_examples,
    num_units,
    num_columns,
    BLOCK: tl.constexpr,
):
    row, entry, last, first_row = _first(indptr, origin, room, num_examples)
    before, lanes = tl.load(peaks + row), tl.arange(0, BLOCK)
    for number in range(entry, last):
        unit = tl.load(targets + number) - first_row
        is_unit = (unit >= 0) & (unit < num_units)
        own = _logit(logits, bias, row, unit, is_unit, num_units, bias_stride)
        tl.store(target_logits + number, own, is_unit)
    end = num_units - (tl.program_id(1) >= num_full).to(tl.int32)
    highest = tl.zeros([BLOCK], tl.float32) + before
    for start in range(0, num_units, BLOCK):
        units = start + lanes
        own = _logit(logits, bias, row, units, units < end, num_units, bias_stride)
        highest = tl.maximum(highest, tl.where(units < end, own, -float("inf")))
    peak = tl.max(highest)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, num_units, BLOCK):
        units = start + lanes
        own = _logit(logits, bias, row, units, units < end, num_units, bias_stride)
        share = tl.where(units < end, tl.exp(own - peak), 0.0).to(shares.dtype.element_ty)
        tl.store(shares + row * num_units + units, share, units < num_units)
        sums += share.to(tl.float32)
    total = tl.load(totals + row) * tl.exp((before - peak).to(tl.float64))
    tl.store(totals + row, total + tl.sum(sums).to(tl.float64))
    tl.store(peaks + row, peak)
    tl.store(peaks_of_tile + row, peak)
    for start in range(0, num_columns, BLOCK):
        places, inside = hidden + row * num_columns + start + lanes, start + lanes < num_columns
        tl.store(places, tl.load(places, inside, 0.0) * tl.exp(before - peak), inside)


def tile_shares(
    logits: Tensor,
    bias: Tensor | None,
    peaks: Tensor,
    totals: Tensor,
    hidden: Tensor,
    peaks_of_tile: Tensor,
    target_logits_Z: Tensor,
    targets: TileTargets,
    half: bool,
) -> Tensor:
    """Return the shares of a tile; see `reference.tile_shares`."""
    shares = torch.empty_like(logits, dtype=torch.bfloat16) if half else logits
    num_shards, num_examples, num_units = logits.shape
    _shares_kernel[num_examples, num_shards](
        logits,  # [S, E, T] float32
        bias,  # [S, T] float32, or None
        shares,  # [S, E, T] float32 or bfloat16, out; may be the logits
        peaks,  # [S, E] float32, in and out
        totals,  # [S, E] float64, in and out
        hidden,  # [S, E, H] float32, in and out
        peaks_of_tile,  # [S, E] float32, out: the peaks after this tile
        target_logits_Z,  # [Z] float32, out for the targets in the tile
        *targets.given(),
        targets.num_full,
        0 if bias is None else bias.stride(0),
        num_examples,
        num_units,
        hidden.shape[-1],
        BLOCK=min(triton.next_power_of_2(num_units), _AT_ONCE),
        enable_fp_fusion=False,
    )
    return shares


@triton.jit
def _pulls_kernel(
    shares,
    scaled,
    peaks_of_tile,
    totals,
    couplings,
    direct,
    pulls,
    indptr,
    targets,
    origin,
    room,
    num_examples,
    num_units,
    num_columns,
    num_scaled,
    BLOCK: tl.constexpr,
):
    row, entry, last, first_row = _first(indptr, origin, room, num_examples)
    example = tl.program_id(0).to(tl.int64)
    factor = tl.exp(tl.load(peaks_of_tile + row) - tl.load(totals + example)) * tl.load(couplings + example)
    factor = tl.maximum(factor, 1e-30)
    for start in range(0, num_scaled, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        own = tl.load(direct + example * num_columns + columns, columns < num_columns, 1.0).to(tl.float32)
        own = (own * factor).to(scaled.dtype.element_ty)
        tl.store(scaled + row * num_scaled + columns, own, columns < num_scaled)
    for number in range(entry, last):
        unit = tl.load(targets + number) - first_row
        is_unit, place = (unit >= 0) & (unit < num_units), shares + row * num_units + unit
        share = tl.load(place, is_unit, 0.0).to(tl.float32) - tl.div_rn(tl.load(pulls + number), factor)
        tl.store(place, share.to(shares.dtype.element_ty), is_unit)


def take_pulls(
    shares: Tensor,
    num_scaled: int,
    peaks_of_tile: Tensor,
    totals_E: Tensor,
    couplings_E: Tensor,
    direct_EH: Tensor,
    pulls_Z: Tensor,
    targets: TileTargets,
) -> Tensor:
    """Return each shard's factors of the incoming vectors, times these; take the pulls from the shares.

    The product of shares and result is the gradient of a tile's weights. Further columns hold the factors,
    so that the same product has the gradient of the biases.
    """
    num_shards, num_examples, num_units = shares.shape
    scaled = shares.new_empty(num_shards, num_examples, num_scaled)
    _pulls_kernel[num_examples, num_shards](
        shares,  # [S, E, T] float32 or bfloat16, in and out
        scaled,  # [S, E, W] of the shares' type, out
        peaks_of_tile,  # [S, E] float32
        totals_E,  # [E] float32, logarithms of the divisors
        couplings_E,  # [E] float32
        direct_EH,  # [E, H] float32 or bfloat16
        pulls_Z,  # [Z] float32
        *targets.given(),
        num_examples,
        num_units,
        direct_EH.shape[1],
        num_scaled,
        BLOCK=min(triton.next_power_of_2(num_scaled), _AT_ONCE),
        enable_fp_fusion=False,
    )
    return scaled


@triton.jit
def _sigmoid(logit):
    """Return sigmoid(logit) and softplus(logit), -log(1 - sigmoid(logit)).

    log(1 + e) is that of a rounded 1 + e, corrected by what rounding has changed.
    """
    small = tl.exp(-tl.abs(logit))
    above = 1.0 + small
    ratio = tl.div_rn(small, tl.where(above == 1.0, 1.0, above - 1.0))
    log = tl.where(above == 1.0, small, tl.log(above) * ratio)
    return tl.div_rn(tl.where(logit < 0.0, small, 1.0), above), tl.maximum(logit, 0.0) + log


@triton.jit
def _slopes_kernel(
    logits,
    bias,
    slopes,
    losses,
    weights,
    values,
    target_slopes,
    indptr,
    targets,
    origin,
    room,
    num_full,
    bias_stride,
    num_examples,
    num_units,
    BLOCK: tl.constexpr,
):
    row, entry, last, first_row = _first(indptr, origin, room, num_examples)
    weight = tl.load(weights + tl.program_id(0))
    pulled = tl.zeros([], tl.float32)
    for number in range(entry, last):
        unit = tl.load(targets + number) - first_row
        is_unit, value = (unit >= 0) & (unit < num_units), 1.0
        if values is not None:
            value = tl.load(values + number)
        own = _logit(logits, bias, row, unit, is_unit, num_units, bias_stride)
        pulled += tl.where(is_unit, value * own, 0.0)
        active, _ = _sigmoid(own)
        tl.store(target_slopes + number, weight * (active - value), is_unit)
    end = num_units - (tl.program_id(1) >= num_full).to(tl.int32)
    sums = tl.zeros([BLOCK], tl.float32)
    tl.debug_barrier()  # slopes may replace logits
    for start in range(0, num_units, BLOCK):
        units = start + tl.arange(0, BLOCK)
        active, loss = _sigmoid(_logit(logits, bias, row, units, units < end, num_units, bias_stride))
        slope = tl.where(units < end, weight * active, 0.0).to(slopes.dtype.element_ty)
        tl.store(slopes + row * num_units + units, slope, units < num_units)
        sums += tl.where(units < end, loss, 0.0)
    tl.debug_barrier()
    for number in range(entry, last):
        unit = tl.load(targets + number) - first_row
        is_unit = (unit >= 0) & (unit < num_units)
        own = tl.load(target_slopes + number, is_unit, 0.0).to(slopes.dtype.element_ty)
        tl.store(slopes + row * num_units + unit, own, is_unit)
    loss = weight.to(tl.float64) * (tl.sum(sums) - pulled).to(tl.float64)
    tl.store(losses + row, tl.load(losses + row) + loss)


def tile_slopes(
    logits: Tensor,
    bias: Tensor | None,
    losses: Tensor,
    weights_E: Tensor,
    values_Z: Tensor | None,
    targets: TileTargets,
    half: bool,
) -> Tensor:
    """Return the slopes of a tile of a sigmoid with the cross-entropy; add each example's loss."""
    slopes = torch.empty_like(logits, dtype=torch.bfloat16) if half else logits
    num_shards, num_examples, num_units = logits.shape
    _slopes_kernel[num_examples, num_shards](
        logits,  # [S, E, T] float32
        bias,  # [S, T] float32, or None
        slopes,  # [S, E, T] float32 or bfloat16, out; may be the logits
        losses,  # [S, E] float64, in and out
        weights_E,  # [E] float32
        values_Z,  # [Z] float32, or None
        torch.empty(len(targets.rows_Z), device=logits.device),  # [Z] float32, for the targets' slopes
        *targets.given(),
        targets.num_full,
        0 if bias is None else bias.stride(0),
        num_examples,
        num_units,
        BLOCK=min(triton.next_power_of_2(num_units), _AT_ONCE),
        enable_fp_fusion=False,
    )
    return slopes
