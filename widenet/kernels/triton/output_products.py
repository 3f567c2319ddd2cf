"""An output's products with the statistics of a softmax, or with losses and slopes, in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from widenet.kernels.triton.formulas import of_others
from widenet.kernels.triton.span import COLUMNS, Span, add_product, block_of, described, precision_of, quarter
from widenet.kernels.triton.tile_others import UnitFormula

_EXAMPLES, _INNER = 128, 64
"""Examples of a program, and numbers of H that it multiplies at once."""


@triton.jit
def product_block(
    direct,
    weights,
    example,
    row,
    num_inner,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return direct[example:] @ weights[row:].T of as many rows as a program has, float32."""
    total = tl.zeros((EXAMPLES, UNITS), tl.float32)
    for first in range(0, num_inner, INNER):
        a, b = direct.load([example, first]), weights.load([row, first])
        total = add_product(total, a, tl.trans(b), PRECISION)
    return total


@triton.jit
def _softmax_kernel(
    direct,
    weights,
    biases,
    sizes,
    shares,
    peaks,
    sums,
    num_examples,
    num_inner,
    width,
    columns,
    operand_room,
    operand_start,
    room,
    start,
    num_blocks,
    first_block,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(1)
    shard, units, exist = block_of(sizes, width, block, UNITS)
    examples = tl.program_id(0) * EXAMPLES + tl.arange(0, EXAMPLES)
    row = shard * operand_room + operand_start + block * UNITS - shard * width
    z = product_block(
        direct, weights, tl.program_id(0) * EXAMPLES, row, num_inner, EXAMPLES, UNITS, INNER, PRECISION
    )
    if biases is not None:
        z += tl.load(biases + shard * room + start + units, mask=exist, other=0.0)[None, :]
    z = tl.where(exist[None, :], z, -float("inf"))
    peak = tl.max(z, axis=1)
    share = tl.exp(z - tl.where(peak == -float("inf"), 0.0, peak)[:, None])
    is_example = examples < num_examples
    place = (shard * num_blocks + first_block + block - shard * (width // UNITS)).to(tl.int64) * num_examples
    tl.store(peaks + place + examples, peak, mask=is_example)
    tl.store(sums + place + examples, tl.sum(share, axis=1), mask=is_example)
    if shares is not None:
        column = block * UNITS + tl.arange(0, UNITS)
        cell = examples.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(shares + cell, share.to(shares.dtype.element_ty), mask=is_example[:, None])


@triton.jit
def _slopes_kernel(
    direct,
    weights,
    biases,
    sizes,
    example_weights,
    deltas,
    column_sums,
    losses,
    num_examples,
    num_inner,
    width,
    columns,
    operand_room,
    operand_start,
    room,
    start,
    num_blocks,
    first_block,
    numbers,
    ACTIVATION: tl.constexpr,
    LOSS: tl.constexpr,
    BY_LOGIT: tl.constexpr,
    EXAMPLES: tl.constexpr,
    UNITS: tl.constexpr,
    INNER: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(1)
    shard = block * UNITS // width
    examples = tl.program_id(0) * EXAMPLES + tl.arange(0, EXAMPLES)
    row = shard * operand_room + operand_start + block * UNITS - shard * width
    z = product_block(
        direct, weights, tl.program_id(0) * EXAMPLES, row, num_inner, EXAMPLES, UNITS, INNER, PRECISION
    )
    is_example = examples < num_examples
    weight = tl.load(example_weights + examples, mask=is_example, other=0.0)
    by_example = tl.zeros((EXAMPLES,), tl.float64)
    first = shard * room + start - shard * width
    for number in tl.static_range(4):
        own = quarter(z, number)
        column = block * UNITS + number * (UNITS // 4) + tl.arange(0, UNITS // 4)
        has_unit = column - shard * width < tl.load(sizes + shard)
        if biases is not None:
            own += tl.load(biases + first + column, mask=has_unit, other=0.0)[None, :]
        inside = is_example[:, None] & has_unit[None, :]
        value, delta = of_others(own, numbers, ACTIVATION, LOSS, BY_LOGIT)
        delta = tl.where(inside, delta * weight[:, None], 0.0)
        cell = examples.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(deltas + cell, delta.to(deltas.dtype.element_ty), mask=is_example[:, None])
        tl.store(column_sums + tl.program_id(0).to(tl.int64) * columns + column, tl.sum(delta, axis=0))
        by_example += tl.sum(tl.where(inside, value, 0.0), axis=1).to(tl.float64)
    part = shard * num_blocks + first_block + block - shard * (width // UNITS)
    loss = tl.sum(by_example * weight.to(tl.float64), axis=0)
    tl.store(losses + part.to(tl.int64) * tl.num_programs(0) + tl.program_id(0), loss)


def softmax_products(
    direct_EK: Tensor,
    operand_RK: Tensor,
    operand_rows: tuple[int, int],
    bias_R: Tensor | None,
    span: Span,
    peaks_SBE: Tensor,
    sums_SBE: Tensor,
    first_block: int,
    shares_EC: Tensor | None,
) -> None:
    """Compute a tile's logits, and write for every `COLUMNS` units their peak and their sum of exp(z - peak).

    Args:
        direct_EK: The incoming vectors, bfloat16 or float32; H of K numbers count. `described` says what
            rows need.
        operand_RK: The units' vectors, of the same type.
        operand_rows: The operand's rows from one shard to the next, and its first row of the tile.
        bias_R: Biases by rows of the weight, float32, or None.
        span: The tile.
        peaks_SBE: Out, float32; -inf where no unit exists.
        sums_SBE: Out, float32.
        first_block: First B of the tile.
        shares_EC: exp(z - peak), of the vectors' type, out, or None; zero where no unit exists.
    """
    grid, operands, more = _launch(direct_EK, operand_RK, span)
    if not grid[0] * grid[1]:
        return
    _softmax_kernel[grid](
        *operands,  # [E, K] and [R, K], bfloat16 or float32
        bias_R,  # [R] float32, or None
        span.sizes_S,  # [S] int32
        shares_EC,  # [E, C] of the operands' type, out, or None
        peaks_SBE,  # [S, B, E] float32, out
        sums_SBE,  # [S, B, E] float32, out
        *_sizes(direct_EK, operand_RK, operand_rows, span, peaks_SBE.shape[1], first_block),
        num_warps=4,
        **more,
    )


def slopes_of_products(
    direct_EK: Tensor,
    operand_RK: Tensor,
    operand_rows: tuple[int, int],
    bias_R: Tensor | None,
    span: Span,
    weight_E: Tensor,
    formula: UnitFormula,
    losses_SBP: Tensor,
    first_block: int,
    delta_EC: Tensor,
) -> Tensor:
    """Compute a tile's logits, losses and weighted slopes, as if no unit were a target.

    Other arguments are as for `softmax_products`.

    Args:
        direct_EK: See there.
        operand_RK: See there.
        operand_rows: See there.
        bias_R: See there.
        span: See there.
        weight_E: Weights of the units, float32.
        formula: Activation and loss.
        losses_SBP: Losses of the parts, float64, out; P is `parts_of` the examples.
        first_block: See there.
        delta_EC: The slopes by the logits, of the vectors' type, out; zero where no unit exists.

    Returns:
        The slopes' sums over each part of the examples, float32 [P, C].
    """
    grid, operands, more = _launch(direct_EK, operand_RK, span)
    sums_PC = torch.empty(grid[0], span.columns, device=direct_EK.device)
    if grid[0] * grid[1]:
        _slopes_kernel[grid](
            *operands,  # [E, K] and [R, K], bfloat16 or float32
            bias_R,  # [R] float32, or None
            span.sizes_S,  # [S] int32
            weight_E,  # [E] float32
            delta_EC,  # [E, C] of the operands' type, out
            sums_PC,  # [P, C] float32, out
            losses_SBP,  # [S, B, P] float64, out
            *_sizes(direct_EK, operand_RK, operand_rows, span, losses_SBP.shape[1], first_block),
            formula.numbers,
            ACTIVATION=formula.activation,
            LOSS=formula.loss,
            BY_LOGIT=formula.by_logit,
            num_warps=8,
            maxnreg=128,  # so that one program's formulas hide behind another's products
            **more,
        )
    return sums_PC


def parts_of(num_examples: int) -> int:
    """Return the number of parts in which the kernels take examples, P."""
    return -(-num_examples // _EXAMPLES)


def _launch(
    direct_EK: Tensor, operand_RK: Tensor, span: Span
) -> tuple[tuple[int, int], tuple[TensorDescriptor, TensorDescriptor], dict[str, object]]:
    """Return a launch's programs, the operands as they load them, and the sizes of their blocks."""
    inner = _INNER if operand_RK.element_size() == 2 else _INNER // 2
    grid = parts_of(len(direct_EK)), span.columns // COLUMNS
    operands = described(direct_EK, _EXAMPLES, inner), described(operand_RK, COLUMNS, inner)
    return (
        grid,
        operands,
        {
            "EXAMPLES": _EXAMPLES,
            "UNITS": COLUMNS,
            "INNER": inner,
            "PRECISION": precision_of(operand_RK),
            "num_stages": 3,
            "enable_fp_fusion": False,
        },
    )


def _sizes(
    direct_EK: Tensor, operand_RK: Tensor, rows: tuple[int, int], span: Span, num_blocks: int, first: int
) -> tuple[int, ...]:
    """Return the numbers of both kernels, in their order."""
    shape = len(direct_EK), operand_RK.shape[1]
    return *shape, span.width, span.columns, *rows, span.room, span.start, num_blocks, first
