"""The product of a convolution: unfolds windows into columns, by blocks that threads and processes share."""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from widenet.model.operands import add_product, fill_product
from widenet.model.product import Blocks
from widenet.plan.narrow import (
    PREDICTED_FILTERS,
    blocks_of_examples,
    edges,
    inner_of_filters,
    inner_of_inputs,
    pieces,
    predicted_examples,
)
from widenet.plan.windows import Axis, Windows


def padded(values: Tensor, axes: tuple[Axis, ...], value: float = 0.0) -> Tensor:
    """Return values [A, B, *places], padded as the windows need."""
    sides = [side for axis in reversed(axes) for side in (axis.before, axis.after)]
    return functional.pad(values, sides, value=value) if any(sides) else values


def padded_zeros(like: Tensor, sizes: tuple[int, int], axes: tuple[Axis, ...]) -> Tensor:
    """Return zeros [A, B, *places] with padding; sizes are A and B."""
    return like.new_zeros(*sizes, *(axis.before + axis.places + axis.after for axis in axes))


def cropped(values: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Return padded values without their padding."""
    for number, axis in enumerate(axes):
        values = values.narrow(2 + number, axis.before, axis.places)
    return values


def reached(values: Tensor, windows: Windows) -> Iterator[Tensor]:
    """Yield, for every number of a kernel, the padded values that it reads: views [A, B, *positions]."""
    for offsets in np.ndindex(*windows.kernel):
        view = values
        for number, (offset, axis) in enumerate(zip(offsets, windows.axes, strict=True)):
            last = offset + (axis.positions - 1) * axis.stride + 1
            view = view[(slice(None),) * (2 + number) + (slice(offset, last, axis.stride),)]
        yield view


def convolution(values_EN: Tensor, weight_FK: Tensor, windows: Windows, blocks: Blocks) -> Tensor:
    """Return the sums of every filter at every position; differentiable by values and weight.

    Every number of the result and of the gradient to the values belongs to one block. The gradient to the
    weight is a sum over blocks, and within them over pieces, in order. So it does not matter who computes a
    block.

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
    total = padded_zeros(columns, (windows.channels, columns.shape[2]), windows.axes)
    for number, view in enumerate(reached(total, windows)):
        view += columns[:, number]
    return cropped(total, windows.axes).transpose(0, 1).reshape(columns.shape[2], -1)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values_EN: Tensor, weight_FK: Tensor, windows: Windows, blocks: Blocks) -> Tensor:
        operand_EN, operand_FK = blocks.operand(values_EN), blocks.operand(weight_FK)
        ctx.save_for_backward(operand_EN, operand_FK)
        ctx.work = work = _Work(len(values_EN), len(weight_FK), windows, blocks, values_EN)
        result_EU = work.empty(work.num, work.filters * prod(windows.positions))
        missing = 0 if blocks.rows is None else max(PREDICTED_FILTERS - work.filters, 0)
        filled_FK = functional.pad(operand_FK, (0, 0, 0, missing))

        def fill(start: int, stop: int) -> None:
            for first, last in work.pieces(start, stop):
                columns_KM = unfolded(operand_EN[first:last], windows)
                sums_FM = work.empty(len(filled_FK), columns_KM.shape[1])
                fill_product(sums_FM, filled_FK, columns_KM)
                sums_FEP = sums_FM[: work.filters].view(work.filters, last - first, -1)
                result_EU[first:last] = sums_FEP.transpose(0, 1).reshape(last - first, -1)

        return blocks.exchange.start_blocks(
            result_EU, work.edges, fill, windows.inputs, blocks.where
        ).result()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        operand_EN, operand_FK = ctx.saved_tensors
        gradient_EU = ctx.work.blocks.operand(gradients[0])
        to_values = ctx.work.to_values(gradient_EU, operand_FK) if ctx.needs_input_grad[0] else None
        to_weight = ctx.work.to_weight(gradient_EU, operand_EN) if ctx.needs_input_grad[1] else None
        return to_values, to_weight, None, None


class _Work:
    """The blocks of a convolution of certain shapes, and its gradients."""

    def __init__(
        self, num_examples: int, filters: int, windows: Windows, blocks: Blocks, like: Tensor
    ) -> None:
        """Cut a convolution into blocks; `like` has the type and device of the result."""
        self.num, self.filters = num_examples, filters
        self.windows, self.blocks = windows, blocks
        self.like, self.device = like.new_empty(0), like.device.type
        if blocks.rows is None:
            self.count = blocks_of_examples(num_examples, windows, filters, blocks.most, self.device)
            self.edges = edges(num_examples, self.count)
        else:
            size = predicted_examples(windows, self.device)
            self.edges = [*range(0, num_examples, size), num_examples]
            self.count = len(self.edges) - 1

    def empty(self, *shape: int) -> Tensor:
        """Return an empty tensor of the result's type."""
        return self.like.new_empty(shape)

    def pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the pieces (start, stop) of a block whose windows are unfolded at once."""
        return list(pieces(start, stop, self.windows, self.device))

    def by_filter(self, gradient_EU: Tensor) -> Tensor:
        """Return gradients to the result of some examples, as [F, E x positions]."""
        num = len(gradient_EU)
        return gradient_EU.view(num, self.filters, -1).transpose(0, 1).reshape(self.filters, -1)

    def to_values(self, gradient_EU: Tensor, operand_FK: Tensor) -> Tensor:
        """Return the gradient to the values, [E, N]."""
        windows = self.windows
        result_EN = self.empty(self.num, windows.channels * prod(windows.places))

        def fill(start: int, stop: int) -> None:
            for first, last in self.pieces(start, stop):
                gradient_FM = self.by_filter(gradient_EU[first:last])
                columns_KM = self.empty(windows.inputs, gradient_FM.shape[1])
                fill_product(columns_KM, operand_FK.T, gradient_FM)
                result_EN[first:last] = folded(columns_KM, windows)

        inner = inner_of_inputs(windows, self.filters)
        return self.blocks.exchange.start_blocks(
            result_EN, self.edges, fill, inner, self.blocks.where
        ).result()

    def to_weight(self, gradient_EU: Tensor, operand_EN: Tensor) -> Tensor:
        """Return the gradient to the weight, [F, K]."""
        parts_BW = self.empty(self.count, self.filters * self.windows.inputs).zero_()

        def fill(block: int, _: int) -> None:
            total_FK = parts_BW[block].view(self.filters, -1)
            for first, last in self.pieces(self.edges[block], self.edges[block + 1]):
                add_product(
                    total_FK,
                    self.by_filter(gradient_EU[first:last]),
                    unfolded(operand_EN[first:last], self.windows).T,
                )

        inner = inner_of_filters(self.num, self.windows, self.count)
        self.blocks.exchange.start_blocks(
            parts_BW, range(self.count + 1), fill, inner, self.blocks.where
        ).result()
        return parts_BW.sum(dim=0).view(self.filters, -1)
