"""Windows that move over places, and the product of a convolution, which unfolds them into columns."""

from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.operands import add_product, fill_product
from widenet.model.product import Blocks
from widenet.plan.layout import Axis, Windows
from widenet.plan.tiles import PREDICTED_ROWS, UNFOLDED_NUMBERS, edges, num_blocks

PREDICTED_EXAMPLES = {"cpu": 1, "cuda": PREDICTED_ROWS["cuda"]}
"""Most examples of a product outside training, by kind of device.

On some processors, MKL rounds an example by its place among others. So on a CPU each has a product of its
own, of one shape and in memory of its own: its bits cannot depend on others.
"""


def padded(values: Tensor, axes: tuple[Axis, ...], value: float = 0.0) -> Tensor:
    """Return values [A, B, *places], padded as the windows need."""
    sides = [side for axis in reversed(axes) for side in (axis.before, axis.after)]
    return functional.pad(values, sides, value=value) if any(sides) else values


def cropped(values: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Return padded values without their padding."""
    spans = [slice(axis.before, axis.before + axis.places) for axis in axes]
    return values[:, :, *spans]


def reached(values: Tensor, windows: Windows) -> Iterator[Tensor]:
    """Yield, for every number of a kernel, the padded values that it reads: views [A, B, *positions]."""
    for offsets in np.ndindex(*windows.kernel):
        spans = (
            slice(offset, offset + (axis.positions - 1) * axis.stride + 1, axis.stride)
            for offset, axis in zip(offsets, windows.axes, strict=True)
        )
        yield values[:, :, *spans]


def scattered(pieces: Iterable[Tensor], windows: Windows, like: Tensor) -> Tensor:
    """Add numbers at the places that windows reach, in the order of the kernel's numbers.

    Args:
        pieces: For every number of a kernel, what each position adds.
        windows: How the kernel moves.
        like: [A, B, ...], as the result [A, B, *places] is.
    """
    sizes = [axis.before + axis.places + axis.after for axis in windows.axes]
    total = like.new_zeros(*like.shape[:2], *sizes)
    for view, piece in zip(reached(total, windows), pieces, strict=True):
        view += piece
    return cropped(total, windows.axes)


def unfolded(values_EN: Tensor, windows: Windows) -> Tensor:
    """Return every window as a column, [channels x kernel, E x positions]."""
    num, axes = len(windows.axes), windows.axes
    moved = padded(values_EN.view(len(values_EN), windows.channels, *windows.places), axes)
    for number, axis in enumerate(axes):
        moved = moved.unfold(2 + number, axis.kernel, axis.stride)
    order = [1, *range(2 + num, 2 + 2 * num), 0, *range(2, 2 + num)]
    return moved.permute(order).reshape(windows.inputs, -1)


def folded(columns_KM: Tensor, windows: Windows) -> Tensor:
    """Add the columns of all windows at the places that they cover: [E, channels x places]."""
    columns = columns_KM.view(windows.channels, prod(windows.kernel), -1, *windows.positions)
    total = scattered(columns.unbind(1), windows, columns[:, 0])
    return total.transpose(0, 1).reshape(columns.shape[2], -1)


def pieces(
    num_examples: int, filters: int, windows: Windows, blocks: Blocks, device: str
) -> list[list[slice]]:
    """Return the blocks of a convolution's examples; shapes and the kind of the device decide.

    Each block is a list of pieces, whose windows are unfolded at once.
    """
    positions = prod(windows.positions)
    room = max(1, UNFOLDED_NUMBERS[device] // (windows.inputs * positions))
    if not blocks.predicts:
        count = num_blocks(
            num_examples * positions, windows.inputs, filters, blocks.exchange.num_shards, device
        )
        starts = edges(num_examples, max(1, min(count, num_examples)))
    else:
        size = min(PREDICTED_EXAMPLES[device], 1 << room.bit_length() - 1)  # powers of two
        starts = [*range(0, num_examples, size), num_examples]
    return [
        [slice(first, min(first + room, stop)) for first in range(start, stop, room)]
        for start, stop in pairwise(starts)
    ]


def convolution(values_EN: Tensor, weight_FK: Tensor, windows: Windows, blocks: Blocks) -> Tensor:
    """Return the sums of every filter at every position; differentiable by values and weight.

    Every number of the result and of the gradient to the values belongs to one piece. The gradient to the
    weight is a sum over blocks, and within them over pieces, in order. So it does not matter which thread
    computes a block.

    Args:
        values_EN: float32 or float64 [E, channels x places], channels slowest.
        weight_FK: [F, channels x kernel].
        windows: How the kernel moves.
        blocks: Computes the products.

    Returns:
        [E, F x positions], filters slowest.
    """
    result: Tensor = _Convolution.apply(values_EN, weight_FK, windows, blocks)  # type: ignore[no-untyped-call]
    return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_EN: Tensor, weight_FK: Tensor, windows: Windows, blocks: Blocks) -> Tensor:
        operand_EN, operand_FK = blocks.operand(values_EN), blocks.operand(weight_FK)
        ctx.save_for_backward(operand_EN, operand_FK)
        num, filters = len(values_EN), len(weight_FK)
        ctx.pieces = pieces(num, filters, windows, blocks, values_EN.device.type)
        ctx.windows, ctx.blocks = windows, blocks
        result_EFP = values_EN.new_empty(num, filters, prod(windows.positions))

        def fill(piece: slice) -> None:
            columns_KM = unfolded(operand_EN[piece], windows)
            if blocks.predicts:
                columns_KM = columns_KM.clone()  # they may be the example's own place among the values
            sums_FM = values_EN.new_empty(filters, columns_KM.shape[1])
            fill_product(sums_FM, operand_FK, columns_KM)
            result_EFP[piece] = sums_FM.view(filters, -1, result_EFP.shape[2]).transpose(0, 1)

        blocks.run(fill, [*chain(*ctx.pieces)])
        return result_EFP.flatten(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        operand_EN, operand_FK = ctx.saved_tensors
        gradient_EU: Tensor = gradients[0]
        windows, blocks, filters = ctx.windows, ctx.blocks, len(operand_FK)
        gradient_EFP: Tensor = blocks.operand(gradient_EU).view(
            len(gradient_EU), filters, prod(windows.positions)
        )
        to_values_EN, to_weight_FK = None, None

        def by_filter(piece: slice) -> Tensor:
            return gradient_EFP[piece].transpose(0, 1).reshape(filters, -1)

        if ctx.needs_input_grad[0]:
            to_values_EN = gradient_EU.new_empty(operand_EN.shape)

            def fill(piece: slice) -> None:
                gradient_FM = by_filter(piece)
                columns_KM = gradient_EU.new_empty(windows.inputs, gradient_FM.shape[1])
                fill_product(columns_KM, operand_FK.T, gradient_FM)
                to_values_EN[piece] = folded(columns_KM, windows)

            blocks.run(fill, [*chain(*ctx.pieces)])
        if ctx.needs_input_grad[1]:
            parts_BFK = gradient_EU.new_zeros(len(ctx.pieces), *operand_FK.shape)

            def add(block: int) -> None:
                for piece in ctx.pieces[block]:
                    columns_MK = unfolded(operand_EN[piece], windows).T
                    add_product(parts_BFK[block], by_filter(piece), columns_MK)

            blocks.run(add, range(len(ctx.pieces)))
            to_weight_FK = parts_BFK.sum(dim=0)
        return to_values_EN, to_weight_FK, None, None
