"""Writes the gradients of sparse targets into a tile, and completes the sums for the biases and the loss."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from widenet.kernels.triton.formulas import of_others, of_targets
from widenet.kernels.triton.span import COLUMNS, Span, block_of
from widenet.kernels.triton.tile_others import UnitFormula

_ENTRIES = 32
"""Entries of a program's units that are processed at the same time."""


@dataclass(frozen=True)
class Entries:
    """The sparse targets of S shards, ascending by row and then by example.

    If a target occurs twice, the last entry counts, but the loss has both.

    Attributes:
        examples_Z: int64.
        rows_Z: Rows of the weight of all shards, int64.
        logits_Z: Logits, float32.
    """

    examples_Z: Tensor
    rows_Z: Tensor
    logits_Z: Tensor


@triton.jit
def _first_at(rows, num_entries, row):
    """Return the first entry whose row is at least `row`."""
    low, high = row * 0, row * 0 + num_entries
    while low < high:
        middle = (low + high) // 2
        is_below = tl.load(rows + middle) < row
        low = tl.where(is_below, middle + 1, low)
        high = tl.where(is_below, high, middle)
    return low


@triton.jit
def _of_unit(
    z,
    t,
    target_weight,
    other_weight,
    numbers,
    ACTIVATION: tl.constexpr,
    LOSS: tl.constexpr,
    BY_LOGIT: tl.constexpr,
):
    """Return the gradients at targets t, and the changes of gradients and losses by their being targets."""
    weight = tl.where(t > 0.0, target_weight, other_weight)
    other, other_slope = of_others(z, numbers, ACTIVATION, LOSS, BY_LOGIT)
    value, slope = of_targets(z, t, numbers, ACTIVATION, LOSS, BY_LOGIT)
    after = value.to(tl.float64) * weight.to(tl.float64)
    before = other.to(tl.float64) * other_weight.to(tl.float64)
    return slope * weight, slope * weight - other_slope * other_weight, after - before


@triton.jit
def _entries_of(rows, num_entries, row, stop, UNITS: tl.constexpr):
    """Return the first entry of the rows [row, row + UNITS) before `stop`, and the one after the last."""
    last = tl.maximum(tl.minimum(row + UNITS, stop), row)
    return _first_at(rows, num_entries, row), _first_at(rows, num_entries, last)


@triton.jit
def _entry(entry, last, rows, examples, row):
    """Return which entries exist, which of them count, their examples, and their units from `row` on."""
    inside, has_next = entry < last, entry + 1 < last
    example = tl.load(examples + entry, mask=inside, other=0)
    unit = tl.load(rows + entry, mask=inside, other=-1)
    is_same = tl.load(rows + entry + 1, mask=has_next, other=-1) == unit
    is_same &= tl.load(examples + entry + 1, mask=has_next, other=-1) == example
    return inside, inside & (is_same == 0), example, unit - row


@triton.jit
def _share(z, example, inside, logarithms, couplings):
    """Return the gradients of a softmax at entries without their pulls."""
    logarithm = tl.load(logarithms + example, mask=inside, other=0.0)
    return tl.exp(z - logarithm) * tl.load(couplings + example, mask=inside, other=0.0)


@triton.jit
def _by_unit(change, unit, stays, UNITS: tl.constexpr):
    """Return the sums of changes by unit."""
    own = (unit[None, :] == tl.arange(0, UNITS)[:, None]) & stays[None, :]
    return tl.sum(tl.where(own, change[None, :], 0.0), axis=1)


@triton.jit
def _values(values, entry, inside):
    """Return the entries' values, ones if there are none."""
    if values is not None:
        return tl.load(values + entry, mask=inside, other=0.0)
    else:
        return tl.full(entry.shape, 1.0, tl.float32)


@triton.jit
def _sums(column_sums, num_parts, columns, column):
    """Return the sums of some columns over all parts of the examples, in their order."""
    total = tl.zeros(column.shape, tl.float32)
    for part in range(num_parts):
        total += tl.load(column_sums + tl.cast(part, tl.int64) * columns + column)
    return total


@triton.jit
def _target_deltas_kernel(
    sizes,
    rows,
    examples,
    logits,
    values,
    pulls,
    target_weights,
    other_weights,
    logarithms,
    couplings,
    deltas,
    column_sums,
    num_parts,
    bias_gradients,
    losses,
    num_entries,
    width,
    columns,
    room,
    start,
    num_blocks,
    first_block,
    numbers,
    ACTIVATION: tl.constexpr,
    LOSS: tl.constexpr,
    BY_LOGIT: tl.constexpr,
    UNITS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    block = tl.program_id(0)
    shard, units, exist = block_of(sizes, width, block, UNITS)
    column = block * UNITS + tl.arange(0, UNITS)
    bias = _sums(column_sums, num_parts, columns, column)
    tile = (shard * room + start).to(tl.int64)
    row, stop = tile + block * UNITS - shard * width, tile + tl.load(sizes + shard)
    first, last = _entries_of(rows, num_entries, row, stop, UNITS)
    loss = tl.zeros((ENTRIES,), tl.float64)
    for begin in range(first, last, ENTRIES):
        entry = begin + tl.arange(0, ENTRIES)
        inside, stays, example, unit = _entry(entry, last, rows, examples, row)
        z = tl.load(logits + entry, mask=inside, other=0.0)
        if pulls is not None:
            change = -tl.load(pulls + entry, mask=inside, other=0.0)
            delta = _share(z, example, inside, logarithms, couplings) + change
            loss += tl.load(values + entry, mask=inside, other=0.0).to(tl.float64)
        else:
            t = _values(values, entry, inside)
            target_weight = tl.load(target_weights + example, mask=inside, other=0.0)
            other_weight = tl.load(other_weights + example, mask=inside, other=0.0)
            delta, change, more = _of_unit(
                z, t, target_weight, other_weight, numbers, ACTIVATION, LOSS, BY_LOGIT
            )
            loss += tl.where(inside, more, 0.0)
        cell = example * columns + block * UNITS + unit
        tl.store(deltas + cell, delta.to(deltas.dtype.element_ty), mask=stays)
        bias += _by_unit(change, unit, stays, UNITS)
    tl.store(bias_gradients + shard * room + start + units, bias, mask=exist)
    part = shard * num_blocks + first_block + block - shard * (width // UNITS)
    tl.store(losses + part, tl.sum(loss, axis=0))


def softmax_target_deltas(
    entries: Entries,
    value_Z: Tensor,
    pull_Z: Tensor,
    log_sum_E: Tensor,
    coupling_E: Tensor,
    span: Span,
    sums_PC: Tensor,
    delta_EC: Tensor,
    bias_gradient_R: Tensor,
    losses_SB: Tensor,
    first_block: int,
) -> None:
    """Write the gradients at a softmax's targets, and the tile's sums.

    Args:
        entries: All entries of the shards.
        value_Z: Their losses, float32.
        pull_Z: Their pulls, float32.
        log_sum_E: As for `softmax_delta`.
        coupling_E: As for `softmax_delta`.
        span: The tile.
        sums_PC: Sums of the other deltas, float32.
        delta_EC: Gradients to the logits, in and out.
        bias_gradient_R: Gradient to the biases, by rows of the weight, float32, out.
        losses_SB: Losses of the targets, float64, out.
        first_block: First B of the tile.
    """
    numbers = (0.0, 0.0), (0.0, 0.0, 0.0, 0.0, 0.0)
    _launch(
        (span.sizes_S, entries.rows_Z, entries.examples_Z, entries.logits_Z, value_Z, pull_Z, None, None),
        (log_sum_E, coupling_E),
        (delta_EC, sums_PC, bias_gradient_R, losses_SB, first_block),
        span,
        UnitFormula("linear", numbers[0], "l2", numbers[1], by_logit=True),
    )


def unit_target_deltas(
    entries: Entries,
    values_Z: Tensor | None,
    target_weight_E: Tensor,
    other_weight_E: Tensor,
    formula: UnitFormula,
    span: Span,
    sums_PC: Tensor,
    delta_EC: Tensor,
    bias_gradient_R: Tensor,
    losses_SB: Tensor,
    first_block: int,
) -> None:
    """Write the gradients at targets of units activated one by one, and the tile's sums.

    Other arguments are as for `softmax_target_deltas`; the losses are changes of those of
    `slopes_of_products`.

    Args:
        entries: See there.
        values_Z: Values of the targets, float32; None: ones.
        target_weight_E: Weights of targets above zero, float32.
        other_weight_E: Weights of all other units, float32.
        formula: Activation and loss.
        span: See there.
        sums_PC: See there.
        delta_EC: See there.
        bias_gradient_R: See there.
        losses_SB: See there.
        first_block: See there.
    """
    _launch(
        (
            span.sizes_S,
            entries.rows_Z,
            entries.examples_Z,
            entries.logits_Z,
            values_Z,
            None,
            target_weight_E,
            other_weight_E,
        ),
        (None, None),
        (delta_EC, sums_PC, bias_gradient_R, losses_SB, first_block),
        span,
        formula,
    )


def _launch(
    given: tuple[Tensor | None, ...],
    of_softmax: tuple[Tensor | None, Tensor | None],
    results: tuple[Tensor, Tensor, Tensor, Tensor, int],
    span: Span,
    formula: UnitFormula,
) -> None:
    delta_EC, sums_PC, bias_gradient_R, losses_SB, first_block = results
    sizes_S, rows_Z, *others = given
    assert rows_Z is not None
    if not span.columns:
        return
    _target_deltas_kernel[(span.columns // COLUMNS,)](
        sizes_S,  # [S] int32
        rows_Z,  # [Z] int64
        *others,  # [Z] int64; float32; float32, or None; float32, or None; [E] float32, or None, twice
        *of_softmax,  # [E] float32, or None, twice
        delta_EC,  # [E, C] bfloat16 or float32, in and out
        sums_PC,  # [P, C] float32
        len(sums_PC),
        bias_gradient_R,  # [R] float32, out
        losses_SB,  # [S, B] float64, out
        len(rows_Z),
        span.width,
        span.columns,
        span.room,
        span.start,
        losses_SB.shape[1],
        first_block,
        formula.numbers,
        ACTIVATION=formula.activation,
        LOSS=formula.loss,
        BY_LOGIT=formula.by_logit,
        UNITS=COLUMNS,
        ENTRIES=_ENTRIES,
        num_warps=4,
        enable_fp_fusion=False,
    )
